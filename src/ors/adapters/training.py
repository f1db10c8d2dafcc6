"""How every adapter reaches its server, and plays, scores, counts and monitors the episodes of a training."""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean
from typing import Any, Self, assert_never, get_args

from ors._rewards import MOST_COMPONENTS
from ors.client import ORS, AsyncORS, AsyncSession, Options, Session
from ors.rollouts import (
    EpisodeRecord,
    Failed,
    Message,
    Outcome,
    PlayArguments,
    Refused,
    Scored,
    SteppedEpisode,
    SteppedEpisodeSync,
    ToolMessage,
    Truncated,
    Unscored,
)
from ors.rollouts.episodes.outcome import Party, is_lost, worth_retrying
from ors.rollouts.episodes.rules import Rules
from ors.rollouts.episodes.scoring import BY_DEFAULT
from ors.rollouts.records import Health, entry_of

RETRIES = 2
_KINDS = ("unscored", "refused", "truncated", *(f"failed_{who}" for who in get_args(Party)))
_TASK_WINDOW, _ALL_WINDOW, _HEALTH_WINDOW = 8, 64, 1024

logger = logging.getLogger("ors.adapters")


class TrainingArguments(PlayArguments, total=False):
    """Arguments of every adapter: those of `play`, with the defaults of `ors eval`.

    An episode that earned nothing counts as 0, unless it failed: then it is left out.
    """

    retries: int
    """How often an episode restarts after an infrastructure failure: 2 by default."""


@dataclass(frozen=True, slots=True)
class Training:
    """The arguments of an adapter, checked, with their defaults."""

    arguments: PlayArguments
    retries: int = RETRIES

    @classmethod
    def of(cls, given: TrainingArguments) -> Self:
        """Fills in the defaults. Raises ValueError or TypeError if an argument is not valid."""
        arguments: Any = {
            "unscored_reward": BY_DEFAULT.unscored_reward,
            "truncated_reward": BY_DEFAULT.truncated_reward,
            **given,
        }
        retries = arguments.pop("retries", RETRIES)
        Rules(**arguments)
        return cls(arguments, retries)

    def begin(self, session: Callable[[], Session]) -> tuple[SteppedEpisodeSync, tuple[Message, ...]]:
        """A stepped episode and its first messages. Opened again, in a new session, if that may help."""
        for _ in range(self.retries + 1):
            episode = SteppedEpisodeSync(session(), **self.arguments)
            first = episode.start()
            if episode.record is None or not worth_retrying(episode.record.outcome):
                break
        return episode, first

    async def begin_async(
        self, session: Callable[[], AsyncSession]
    ) -> tuple[SteppedEpisode, tuple[Message, ...]]:
        for _ in range(self.retries + 1):
            episode = SteppedEpisode(session(), **self.arguments)
            first = await episode.start()
            if episode.record is None or not worth_retrying(episode.record.outcome):
                break
        return episode, first


class Account:
    """Pays the reward of an episode in parts, for trainers that add up its steps and may cut it at any."""

    def __init__(self, training: Training) -> None:
        self.paid = 0.0
        self._rules, self._steps = Rules(**training.arguments), list[ToolMessage]()

    def pay(self, new: Sequence[Message], record: EpisodeRecord | None) -> float:
        """The part of a step. With it, all that is paid is what the episode counts as if it ends here.

        Raises `NoReward` if it has ended, and is left out.
        """
        self._steps += [each for each in new if isinstance(each, ToolMessage)]
        due = self._so_far() if record is None else reward_of(record)
        before, self.paid = self.paid, due
        return due - before

    def _so_far(self) -> float:
        try:
            return self._rules.score(Truncated("tokens"), [each.reward for each in self._steps]) or 0.0
        except Exception:  # a function of the user's that needs the whole episode
            return self._rules.truncated_reward or 0.0

    def components(self) -> dict[str, float]:
        """The named rewards of the steps so far."""
        return self._rules.components(Truncated("tokens"), self._steps)


class NoReward(Exception):
    """The episode has no reward: leave it out of the training."""

    def __init__(self, record: EpisodeRecord) -> None:
        super().__init__(f"the episode {told(record.outcome)} and has no reward")
        self.outcome = record.outcome


def reward_of(record: EpisodeRecord) -> float:
    """The reward of an episode. Raises `NoReward` if it has none."""
    if record.reward is None:
        raise NoReward(record)
    return record.reward


def told(outcome: Outcome) -> str:
    """How an episode ended: who failed, at which stage, and with which message."""
    match outcome:
        case Scored() | Unscored() | Refused():
            return f"is {outcome.type}"
        case Truncated():
            return f"is truncated by {outcome.limit}: {outcome.detail}"
        case Failed():
            where = f"{outcome.who}, at the stage {outcome.stage!r}"
            return f"failed: {where}, {outcome.error}: {outcome.message}"
        case _:
            assert_never(outcome)


def kind(outcome: Outcome) -> str:
    """The outcome's name in metrics."""
    return f"failed_{outcome.who}" if isinstance(outcome, Failed) else outcome.type


def component_means(records: Sequence[EpisodeRecord]) -> dict[str, float]:
    """Metrics: the means of the named rewards. An episode that counts and lacks one counts as 0 in it."""
    counted = [each.components for each in records if each.reward is not None]
    means = means_of(counted, MOST_COMPONENTS)
    return {f"ors/reward/{name}": mean for name, mean in means.items()}


def means_of(counted: Sequence[Mapping[str, float]], most: int | None = None) -> dict[str, float]:
    """The mean of each name, of the `most` frequent ones. Who lacks a name counts as 0 in it."""
    names = Counter(name for each in counted for name in each).most_common(most)
    return {name: fmean(each.get(name, 0.0) for each in counted) for name, _ in names}


class MostFailed(RuntimeError):
    """Most episodes of a step failed, so that it would train on little or nothing."""


class Watch:
    """Counts how episodes end, and warns about what `ors runs check` would find in the latest.

    It also warns when a policy may have learned to break the environment.
    """

    def __init__(self) -> None:
        self._broken: dict[str, tuple[int, int, int]] = {}
        """Of a task or an environment: episodes, failures in the first ones, and in those now."""
        self._health = Health(window=_HEALTH_WINDOW)

    def count(self, records: Sequence[EpisodeRecord]) -> dict[str, float]:
        """Logs why episodes failed; returns metrics: the share that is left out, and that of each kind."""
        for record in records:
            self._compare(record)
        for finding in self._health.add(map(entry_of, records)):
            if not finding.kind.startswith("failed"):  # which is told below
                logger.warning("%s", finding)
        failed = [each for each in records if isinstance(each.outcome, Failed)]
        reasons = Counter((told(each.outcome), each.reward) for each in failed)
        for (text, reward), count in reasons.most_common(8):
            counts = "left out" if reward is None else f"counted as {reward:g}"
            logger.warning("%d of %d episodes %s (%s)", count, len(records), text, counts)
        kinds = Counter(kind(each.outcome) for each in records)
        kinds["left_out"] = sum(each.reward is None for each in records)
        names = ("left_out", *_KINDS) if records else ()
        return {f"ors/{name}": kinds[name] / len(records) for name in names}

    def _compare(self, record: EpisodeRecord) -> None:
        broke, task = kind(record.outcome) == "failed_environment", record.task
        name = f"{task.environment}/{task.split}/{task.index}"
        for key, window in ((name, _TASK_WINDOW), (task.environment, _ALL_WINDOW)):
            seen, first, now = self._broken.get(key, (0, 0, 0))
            now = broke + (now if seen % window else 0)
            first = now if seen < window else first
            if 2 * (now - first) >= window:
                logger.warning(
                    "%s: the environment failed in %.0f%% of the first episodes, and in %.0f%% of the last."
                    " If the policy has learned to break it, failed_reward={'environment': 0} makes that"
                    " a loss",
                    *(key, 100 * first / window, 100 * now / window),
                )
                first = window  # one warning is enough
            self._broken[key] = seen + 1, first, now


def check_step(records: Sequence[EpisodeRecord]) -> None:
    """Ends a training in which most episodes of a step failed, and the policy cannot have caused it.

    A tool that raises is the policy's doing, perhaps; the step counts as failed if all episodes did.

    Raises:
        MostFailed: they did. The message says why.
    """
    failed = [each.outcome for each in records if isinstance(each.outcome, Failed) and each.reward is None]
    caused = [each for each in failed if each.who == "environment" and each.stage == "call"]
    if 2 * (len(failed) - len(caused)) > len(records) or (failed and len(failed) == len(records)):
        (text, count), *_ = Counter(map(told, failed)).most_common(1)
        raise MostFailed(
            f"{len(failed)} of the {len(records)} episodes of this step failed; {count} of them {text}"
            f" (environment {records[0].task.environment!r})"
        )


def check_recent(records: Sequence[EpisodeRecord]) -> None:
    """Checks episodes as `check_step` does. If all are of one task, it may be broken alone."""
    several = len({(each.task.split, each.task.index) for each in records}) > 1
    check_step([each for each in records if several or kind(each.outcome) != "failed_environment"])


class Recent:
    """What a process has played, where the trainer tells nobody in it which episodes a step has."""

    def __init__(self) -> None:
        self.watch, self._records = Watch(), deque[EpisodeRecord](maxlen=_ALL_WINDOW)
        self.names: tuple[str, ...] | None = None
        """The names of rewards that the environment declares, once somebody has asked."""

    def count(self, record: EpisodeRecord) -> dict[str, float]:
        """Logs why an episode failed; returns its metrics.

        Raises `MostFailed` if most recent episodes did, or if the server refused to open this one, as it
        would any other: it does not know the environment, the task or the key.
        """
        metrics, outcome = self.watch.count([record]), record.outcome
        self._records.append(record)
        if isinstance(outcome, Failed):
            if outcome.stage == "opening" and is_lost(outcome) and not worth_retrying(outcome):
                check_step([record])
            if len(self._records) >= _TASK_WINDOW:
                check_recent(self._records)
        return metrics


@lru_cache
def recent(base_url: str, environment: str) -> Recent:
    return Recent()


OPTIONS = Options(keep_messages=False, idle_seconds=120)
"""Episodes have messages of their own: sessions need not keep them too, about 1.5 kB a call."""


def shared_client(base_url: str) -> AsyncORS:
    """The client of the running event loop for a server: trainers make an object for every rollout."""
    return _client(base_url, asyncio.get_running_loop())


@lru_cache
def _client(base_url: str, loop: asyncio.AbstractEventLoop) -> AsyncORS:
    exit_on_sigterm()
    return AsyncORS(base_url, options=OPTIONS)


@lru_cache
def shared_sync_client(base_url: str) -> ORS:
    """The client of this process for a server, for sync code."""
    exit_on_sigterm()
    return ORS(base_url, options=OPTIONS)


def exit_on_sigterm() -> None:
    """Makes SIGTERM end this process as `exit` does, so that sessions are closed; others' handlers stay."""
    on_main = threading.current_thread() is threading.main_thread()
    if on_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def secrets_from(names: Iterable[str]) -> dict[str, str]:
    """The secrets of these names, from the variables of the process: NAME, or NAME in capitals.

    Raises:
        ValueError: a variable is not set.
    """
    found = {}
    for name in names:
        value = os.environ.get(name) or os.environ.get(name.upper())
        if not value:
            raise ValueError(f"The secret {name} is missing: set the environment variable {name.upper()}")
        found[name] = value
    return found
