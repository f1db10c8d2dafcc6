"""How every adapter plays, scores, counts and watches the episodes of a training."""

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self, assert_never, get_args

from ors.client import AsyncSession, Session
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
from ors.rollouts.episodes.rules import Rules, reducer
from ors.rollouts.episodes.scoring import BY_DEFAULT

RETRIES = 2
_KINDS = ("unscored", "refused", "truncated", *(f"failed_{who}" for who in get_args(Party)))
_TASK_WINDOW, _ALL_WINDOW = 8, 64

logger = logging.getLogger("ors.adapters")


class TrainingArguments(PlayArguments, total=False):
    """Arguments of every adapter: those of `play`, with the defaults of `ors eval`.

    An episode that earned nothing counts as 0, unless it failed: then it is left out.
    """

    retries: int
    """How often an episode begins anew after a failure of the infrastructure: 2 by default."""


@dataclass(frozen=True, slots=True)
class Training:
    """The arguments of an adapter, checked, with their defaults."""

    arguments: PlayArguments
    retries: int = RETRIES

    @classmethod
    def of(cls, given: TrainingArguments) -> Self:
        """Checks the arguments.

        Raises:
            ValueError, TypeError: one is not valid.
        """
        arguments: dict[str, Any] = {
            "unscored_reward": BY_DEFAULT.unscored_reward,
            "truncated_reward": BY_DEFAULT.truncated_reward,
            **given,
        }
        retries = arguments.pop("retries", RETRIES)
        Rules(**arguments)
        return cls(arguments, retries)  # type: ignore[arg-type]

    def begin(self, session: Callable[[], Session]) -> tuple[SteppedEpisodeSync, tuple[Message, ...]]:
        """A stepped episode and its first messages. Opened again, in a new session, if that may help."""
        for left in range(self.retries, -1, -1):
            episode = SteppedEpisodeSync(session(), **self.arguments)
            first = episode.start()
            if episode.record is None or not left or not worth_retrying(episode.record.outcome):
                break
        return episode, first

    async def begin_async(
        self, session: Callable[[], AsyncSession]
    ) -> tuple[SteppedEpisode, tuple[Message, ...]]:
        """The same without blocking."""
        for left in range(self.retries, -1, -1):
            episode = SteppedEpisode(session(), **self.arguments)
            first = await episode.start()
            if episode.record is None or not left or not worth_retrying(episode.record.outcome):
                break
        return episode, first


class Account:
    """Pays the reward of an episode in parts, for trainers that add up its steps and may cut it at any."""

    def __init__(self, training: Training) -> None:
        self.paid = 0.0
        rules = Rules(**training.arguments)
        self._scoring, self._reduced, self._rewards = rules.scoring(), reducer(rules.reward), list[float]()

    def pay(self, new: Sequence[Message], record: EpisodeRecord | None) -> float:
        """The part of a step. With it, all that is paid is what the episode counts as if it ends here.

        Raises:
            NoReward: it has ended, and is left out.
        """
        results = [each for each in new if isinstance(each, ToolMessage)]
        self._rewards += [each.reward for each in results if each.reward is not None]
        due = self._so_far() if record is None else reward_of(record)
        before, self.paid = self.paid, due
        return due - before

    def _so_far(self) -> float:
        try:
            earned = self._reduced(self._rewards) if self._rewards else None
        except Exception:  # a function of the user's that needs the whole episode
            earned = None
        return self._scoring.score(Truncated("tokens"), earned) or 0.0


class NoReward(Exception):
    """The episode has no reward: leave it out of the training."""

    def __init__(self, record: EpisodeRecord) -> None:
        super().__init__(f"the episode {told(record.outcome)} and has no reward")
        self.outcome = record.outcome


def reward_of(record: EpisodeRecord) -> float:
    """The reward of an episode.

    Raises:
        NoReward: it has none.
    """
    if record.reward is None:
        raise NoReward(record)
    return record.reward


def told(outcome: Outcome) -> str:
    """What became of an episode: who failed, at which stage, and with what text."""
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


class MostFailed(RuntimeError):
    """Most episodes of a step failed, so that it would train on little or nothing."""


class Watch:
    """Counts what becomes of episodes, and warns when a policy may have learned to break the environment."""

    def __init__(self) -> None:
        self._shares: defaultdict[Any, _Share] = defaultdict(_Share)

    def count(self, records: Sequence[EpisodeRecord]) -> dict[str, float]:
        """Logs why episodes failed; returns metrics: the share that is left out, and that of each kind."""
        for record in records:
            self._watch(record)
        failed = [each for each in records if isinstance(each.outcome, Failed)]
        reasons = Counter((told(each.outcome), each.reward) for each in failed)
        for (text, reward), count in reasons.most_common(8):
            counts = "left out" if reward is None else f"counted as {reward:g}"
            logger.warning("%d of %d episodes %s (%s)", count, len(records), text, counts)
        kinds = Counter(kind(each.outcome) for each in records)
        kinds["left_out"] = sum(each.reward is None for each in records)
        return (
            {f"ors/{name}": kinds[name] / len(records) for name in ("left_out", *_KINDS)} if records else {}
        )

    def _watch(self, record: EpisodeRecord) -> None:
        broke = isinstance(record.outcome, Failed) and record.outcome.who == "environment"
        task = record.task
        name = f"{task.environment}/{task.split}/{task.index}"
        for key, window in ((name, _TASK_WINDOW), (task.environment, _ALL_WINDOW)):
            if rise := self._shares[key].rise(broke, window):
                logger.warning(
                    "%s: the environment failed in %.0f%% of the first episodes, and in %.0f%% of the last."
                    " If the policy has learned to break it, failed_reward={'environment': 0} makes that"
                    " a loss",
                    *(key, *rise),
                )


@lru_cache
def shared_watch() -> Watch:
    """The watch of this process, for adapters that are made anew for each episode."""
    return Watch()


class _Share:
    """How often something happened in the first episodes and in the last ones."""

    def __init__(self) -> None:
        self._seen = self._first = self._last = 0

    def rise(self, happened: bool, window: int) -> tuple[float, float] | None:
        """Both shares in percent, once the second is higher by half of all episodes."""
        self._first += happened if self._seen < window else 0
        self._seen += 1
        self._last = (self._last << 1 | happened) & (1 << window) - 1
        first, last = self._first, self._last.bit_count()
        if 2 * (last - first) < window:
            return None
        self._first = last
        return 100 * first / window, 100 * last / window


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
    """The same for episodes that may all be of one task, which may be broken alone.

    Raises:
        MostFailed: as `check_step`.
    """
    several = len({(each.task.split, each.task.index) for each in records}) > 1
    check_step([each for each in records if several or kind(each.outcome) != "failed_environment"])


class Recent:
    """What a process has played, where the trainer tells nobody in it which episodes a step has."""

    def __init__(self) -> None:
        self._watch, self._records = Watch(), deque[EpisodeRecord](maxlen=_ALL_WINDOW)

    def count(self, record: EpisodeRecord) -> dict[str, float]:
        """Logs why an episode failed; returns its metrics.

        Raises:
            MostFailed: most of the recent episodes did, or the server refused to open this one, as it would
                any other: it does not know the environment, the task or the key.
        """
        metrics, outcome = self._watch.count([record]), record.outcome
        unopened = isinstance(outcome, Failed) and outcome.stage == "opening" and is_lost(outcome)
        if unopened and record.reward is None and not worth_retrying(outcome):
            raise MostFailed(f"the episode {told(outcome)} (environment {record.task.environment!r})")
        self._records.append(record)
        if isinstance(outcome, Failed) and len(self._records) >= _TASK_WINDOW:
            check_recent(self._records)
        return metrics


@lru_cache
def recent(base_url: str, environment: str) -> Recent:
    return Recent()
