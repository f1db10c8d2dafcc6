"""EvalRun: plays the missing episodes of an evaluation; what the operating system does to it."""

import asyncio
import signal
from collections.abc import Callable, Container, Coroutine, Mapping
from contextlib import aclosing, nullcontext, suppress
from dataclasses import dataclass, replace
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit
from typing import Any

import click

from ors._identity import Identity
from ors.cli.errors import LONGEST_LINE, clean
from ors.cli.evaluation.plan import EvalPlan
from ors.cli.evaluation.report import EvalTally, live_table
from ors.cli.output.printing import shortened
from ors.cli.output.runs import warn_of_skipped
from ors.cli.targets.connect import known_name
from ors.client import AsyncEnvironment, AsyncORS
from ors.rollouts import (
    Agent,
    EpisodeKey,
    EpisodeLimits,
    EpisodeRecord,
    Failed,
    Outcome,
    TaskRef,
    Usage,
    episode_key,
    rollouts,
)
from ors.rollouts.episodes.scoring import Scoring
from ors.rollouts.records import Run, RunWriter, read_run
from ors.rollouts.records.writer import declare

STOP_AFTER = 20
"""So many failures in a row stop a run: the next would fail too, and cost as much."""


@dataclass
class EvalRun:
    """One evaluation: a plan, its agent, and the server with the environment."""

    plan: EvalPlan
    agent: Agent
    url: str
    api_key: str | None
    secrets: Mapping[str, str]
    begun: bool = False
    """Whether the folder of the run is open, or was."""
    stopped: str = ""
    """Why it was stopped early."""

    async def play(
        self,
        opened: Callable[[str, Identity], RunWriter],
        concurrency: int,
        retry: Container[str],
        *,
        total: EpisodeLimits,
        quiet: bool,
    ) -> None:
        """Plays missing episodes and those that `retry` names; appends each to the run as it ends.

        `opened` opens the run of an environment and its code, once there is something to play. Many failures
        in a row, one that all others would share, or a limit of `total`, which all share, stop the run.
        """
        async with AsyncORS(self.url, self.api_key) as client:
            name = known_name(await client.list_environments(), self.plan.environment)
            env = client.environment(name)
            tasks = await self.plan.tasks.tasks(env)
            declared = await env.reward_spec()
            told = await env.description(counts=False) or {}
            values = (told.get("parameters") or {}).get("values")
            with opened(name, Identity(told.get("version"), told.get("hash"), values)) as writer:
                self.begun = True
                declare(writer.folder, {name: declared})
                tally = EvalTally(len(tasks) * self.plan.samples, Scoring.of(self.plan.as_json()))
                tally.range = declared.range
                skip = _played(read_run(writer.folder), tasks, self.plan.samples, tally, retry)
                how = {"concurrency": concurrency, "secrets": self.secrets, "skip": skip, "keep_tasks": True}
                how |= self.plan.playing()
                with nullcontext() if quiet else live_table(tally):
                    await self._play(env, tasks, writer, tally, total, how)

    async def _play(
        self,
        env: AsyncEnvironment,
        tasks: list[TaskRef],
        writer: RunWriter,
        tally: EvalTally,
        total: EpisodeLimits,
        how: dict[str, Any],
    ) -> None:
        in_a_row, self.stopped = 0, _over(total, tally.usage)
        clock = asyncio.timeout(total.seconds)
        try:
            async with aclosing(rollouts(env, tasks, self.agent, **how)) as records, clock:
                tally.running = lambda: records.running
                while not self.stopped and (record := await anext(records, None)) is not None:
                    try:
                        writer.append(record)
                    except (TypeError, ValueError) as error:
                        record = _without_content(record, error)
                        writer.append(record)
                    tally.add(record)
                    in_a_row = in_a_row + 1 if isinstance(record.outcome, Failed) else 0
                    self.stopped = _reason_to_stop(record.outcome, in_a_row) or _over(total, tally.usage)
        except TimeoutError:
            if not clock.expired():
                raise
            self.stopped = f"Stopped after {total.seconds:g} s, the limit of the run (--max-total-seconds)"
        finally:
            close = getattr(self.agent, "close", None)
            if close is not None:
                await close()


def _over(total: EpisodeLimits, usage: Usage) -> str:
    """Which limit of the run is reached, in one line; empty if none is."""
    if usage != Usage() and (unknown := total.blind(usage)):
        return f"Stopped: cannot enforce the limit of the run on {unknown}"
    reached = total.reached(0, usage)
    flag = "" if reached is None else f"--max-total-{reached.limit}"
    return "" if reached is None else f"Stopped at {reached.detail}, the limit of the run; raise {flag}"


def _without_content(record: EpisodeRecord, error: Exception) -> EpisodeRecord:
    """A failure in the place of an episode with values that a run cannot hold."""
    outcome = Failed("infrastructure", "closing", type(error).__name__, f"It cannot be recorded: {error}")
    task = replace(record.task, spec=None) if not record.task.is_whole else record.task
    return EpisodeRecord(record.id, task, record.sample, outcome, None, (), (), agent=record.agent)


def _reason_to_stop(outcome: Outcome, in_a_row: int) -> str:
    """Why no more episodes are worth playing, in one line; empty if they are."""
    if not isinstance(outcome, Failed) or not (outcome.final or in_a_row >= STOP_AFTER):
        return ""
    text = clean(shortened(f"{outcome.who}: {outcome.message or outcome.error}", LONGEST_LINE))
    return f"Stopped: {text}" if outcome.final else f"Stopped after {in_a_row:,} failures in a row: {text}"


def _unreadable(run: Run) -> Mapping[str, str]:
    """Why episodes cannot be read, by their ids. Their lines begin well, so that the index has them."""
    found: dict[str, str] = {}
    for _ in run.episodes(on_broken=lambda entry, error: found.update({entry.id: str(error)})):
        pass
    warn_of_skipped([*map(str, run.broken), *found.values()], "unreadable episode", "playing again")
    return found


def _played(
    run: Run, tasks: list[TaskRef], samples: int, tally: EvalTally, retry: Container[str]
) -> set[EpisodeKey]:
    """Counts the episodes that the run has already, and returns their keys."""
    wanted = {episode_key(task, sample) for task in tasks for sample in range(samples)}
    played, others = set(), 0
    unreadable = _unreadable(run)
    for entry in run.entries:
        key = (entry.task, entry.sample)
        if key not in wanted:
            others += 1
        elif entry.failed_by not in retry and entry.id not in unreadable:
            played.add(key)
            tally.add(entry)
    if others:
        text = f"Warning: {others:,} episodes of the run belong to tasks that are no longer selected"
        click.echo(f"{text}: the environment has changed", err=True)
    return played


PER_EPISODE = 3
"""A connection to the server, one to the model, and one for a ping or a parallel call."""
MOST_RESERVED = 96
"""For everything else; of a low limit, a quarter."""


def affordable(concurrency: int) -> int:
    """How many episodes can run at once; raises the limit of open files first, as far as it can be."""
    soft, hard = getrlimit(RLIMIT_NOFILE)
    wanted = MOST_RESERVED + PER_EPISODE * concurrency
    if soft == RLIM_INFINITY or soft >= wanted:
        return concurrency
    with suppress(ValueError, OSError):  # some systems allow less than they say
        setrlimit(RLIMIT_NOFILE, (wanted if hard == RLIM_INFINITY else min(wanted, hard), hard))
    soft, _ = getrlimit(RLIMIT_NOFILE)
    fits = max(1, (soft - min(MOST_RESERVED, soft // 4)) // PER_EPISODE)
    if fits < concurrency:
        text = f"{concurrency:,} concurrent episodes need more open files than the limit of {soft:,}"
        click.echo(f"Warning: {text}: playing {fits:,} at once (raise the limit with ulimit -n)", err=True)
    return min(fits, concurrency)


async def stopped_by_signals(work: Coroutine[Any, Any, None]) -> None:
    """Awaits `work`; a signal that stops processes, or a terminal that closes, cancels it."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` ignores SIGHUP, and that must stay
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await task
