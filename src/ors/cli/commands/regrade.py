"""`ors regrade`: recomputes the rewards of a recorded run, without the agent."""

import asyncio
import inspect
import os
import shutil
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import click

from ors import Environment
from ors._identity import Identity
from ors.cli.commands.replay import Found, Source, how_to_play, patience, run_and_target
from ors.cli.errors import CommandError, WrongUsage, clean, shown_path
from ors.cli.evaluation.run import stopped_by_signals
from ors.cli.options.shared import Command
from ors.cli.output.printing import print_json, print_table, shortened
from ors.cli.output.runs import warn_of_skipped
from ors.cli.targets.connect import known_name
from ors.cli.targets.resolve import as_url, environments, roots
from ors.client import AsyncEnvironment
from ors.rollouts import EpisodeRecord, Failed, Rules, TaskKey, TaskRef, task_key
from ors.rollouts.episodes.episode import mask_secrets
from ors.rollouts.episodes.rules import ReductionName
from ors.rollouts.records import Run, RunError, RunInfo, RunWriter, read_run
from ors.rollouts.records.statistics import counted, mean_of
from ors.rollouts.regression import Grader, graded, has_grade, played_again
from ors.server.episodes.threads import Executor, Threads

MOST_LISTED = 10


@click.command(
    "regrade",
    cls=Command,
    examples=[
        "ors regrade runs/served --out runs/regraded",
        "ors regrade runs/first adder --out runs/fixed",
        "ors regrade runs/first http://127.0.0.1:8080 --out runs/served-again --json",
    ],
)
@run_and_target
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the new run.")
@how_to_play
def regrade(run: Path, where: str | None, out: Path, as_json: bool, **how: Any) -> None:
    """Recompute the rewards of a recorded run, without the agent.

    A TARGET whose environment has a method grade(self, transcript) grades the recorded conversations.
    Otherwise the recorded calls are played again; an episode whose results have changed gets no reward.
    Failed episodes stay failed. RUN is not changed. Without URL|TARGET, the one that the run was recorded
    with is used. `ors runs compare` shows what has changed, task by task.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise WrongUsage(f"{shown_path(out)} is not empty: choose another folder")
    source = Source.opened(run, where, how)
    try:
        regraded, told = _regraded(_Graders(source), out)
    except RunError as error:
        raise WrongUsage(str(error)) from None
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    warn_of_skipped([*map(str, source.run.broken), *source.unreadable], "episode")
    if as_json:
        print_json({"run": str(out), **regraded, **told})
    else:
        _print_regraded(regraded, told, out)
    if not told["graded"]:
        raise CommandError("No episode could be graded")


def _regraded(graders: "_Graders", out: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Writes the new run; returns what it says about itself, and what has changed."""
    source = graders.source
    with _staged(out) as folder, ExitStack() as stack:
        url = stack.enter_context(source.served()) if None in graders.classes.values() else ""
        info = graders.info()
        with RunWriter.create(folder, info) as writer:

            async def work(record: EpisodeRecord, found: Found) -> None:
                writer.append(await graders.regrade(record, found))

            asyncio.run(stopped_by_signals(_graded_in_threads(source.each(url, source.records(), work))))
            told = _changes(source.run, read_run(folder))
            kept = {name: value for name, value in told.items() if not isinstance(value, list)}
            regraded = {**info.config["regraded"], **kept}
            writer.describe(replace(info, config={**info.config, "regraded": regraded}))
    return regraded, told


async def _graded_in_threads(work: Coroutine[Any, Any, None]) -> None:
    """Awaits `work`. A `grade` that hangs keeps neither other episodes waiting nor the process alive."""
    asyncio.get_running_loop().set_default_executor(Executor(Threads()))
    await work


@contextmanager
def _staged(out: Path) -> Iterator[Path]:
    """A hidden folder beside `out` that becomes it at the end: what is interrupted leaves no run."""
    folder = out.parent / f".{out.name}-{os.urandom(4).hex()}"
    try:
        yield folder
        folder.replace(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Graders:
    """Grades episodes by the classes of their environments, or by playing their calls again."""

    def __init__(self, source: Source) -> None:
        self.source = source
        names = sorted({entry.task.environment for entry in source.run.entries})
        self.classes: dict[str, type[Environment] | None] = dict.fromkeys(names)
        """By the name of each environment of the run: the class with `grade`; None if it has none."""
        self._code: dict[str, Identity] = {}
        """The code that gives the rewards, as far as it is known."""
        self._tasks: dict[TaskKey, Any] = {}
        self._rewards = dict(source.run.info.rewards)
        if as_url(source.targets[0]) is None:
            known = {cls.name().lower(): cls for cls in environments(source.targets, *source.variant)}
            for name in names:
                cls = known[known_name(list(known), source.env or name)]
                self.classes[name] = cls if has_grade(cls) else None
                self._code[name], self._rewards[name] = cls._identity(), cls._rewards

    async def regrade(self, record: EpisodeRecord, found: Found) -> EpisodeRecord:
        name, secrets = record.task.environment, self.source.secrets
        if self.classes[name] is None:
            new = await self._played_again(found(name), record)
        else:
            new = await graded(record, self._grader)
        new = replace(new, version=None, hash=None)  # the writer knows the code of the new rewards
        return new.masked(mask_secrets(secrets)) if secrets else new

    async def _played_again(self, env: AsyncEnvironment, record: EpisodeRecord) -> EpisodeRecord:
        chosen: Any = self.source.run.info.config.get("reward")
        rules = Rules(reward=chosen if chosen in get_args(ReductionName) else "sum")
        try:
            async with asyncio.timeout(patience(record)):
                return await played_again(env, record, rules, self.source.secrets)
        except TimeoutError:
            outcome = Failed(
                "environment", "call", "TimeoutError", "It took much longer than in the recording"
            )
            return replace(record, outcome=outcome, reward=None, components={})

    async def _grader(self, task: TaskRef) -> Grader:
        cls, key = self.classes[task.environment], task_key(task)
        assert cls is not None
        if key not in self._tasks:
            self._tasks[key] = task.spec if task.is_whole else await _task(cls, task)
        return cls(deepcopy(self._tasks[key]), dict(self.source.secrets)).grade  # type: ignore[no-any-return]

    def info(self) -> RunInfo:
        """Describes the new run. It has no model, so that `ors eval --resume` does not play into it."""
        old, targets = self.source.run.info, self.source.targets
        here = None if as_url(targets[0]) else roots(targets)[0]
        info = replace(RunInfo.gathered({}, target=here), kind=old.kind, rewards=self._rewards)
        code = {name: asdict(each) for name, each in self._code.items()}
        grader = {"target": list(targets), "environments": code, "git": info.git and asdict(info.git)}
        how = {name: "replay" if cls is None else "grade" for name, cls in self.classes.items()}
        regraded = {
            "source": str(self.source.run.folder),
            "created": old.created,
            "grader": grader,
            "how": how,
        }
        kept = {name: value for name, value in old.config.items() if name != "model"}
        config = {**kept, "target": targets[0], "regraded": regraded}
        return replace(info, environments=self._code, config=config)


async def _task(cls: type[Environment], task: TaskRef) -> Any:
    found = await asyncio.to_thread(cls.get_task, str(task.split), int(task.index or 0))
    return await found if inspect.isawaitable(found) else found


def _changes(source: Run, new: Run) -> dict[str, Any]:
    before = {entry.id: entry for entry in source.entries}
    scored = [each for each in new.entries if each.score is not None and before[each.id].score is not None]
    lost = [
        {
            "episode": each.id,
            "task": each.task.label,
            "who": failed.who,
            "error": failed.error,
            "message": failed.message,
        }
        for each in new.entries
        if isinstance(failed := each.outcome, Failed) and not before[each.id].failed_by
    ]
    return {
        "episodes": len(new.entries),
        "graded": len(scored),
        "changed": sum(each.score != before[each.id].score for each in scored),
        "before": mean_of([before[each.id].score or 0.0 for each in scored]) if scored else None,
        "after": mean_of([each.score or 0.0 for each in scored]) if scored else None,
        "not_graded": lost,
    }


def _print_regraded(regraded: Mapping[str, Any], told: Mapping[str, Any], out: Path) -> None:
    how = ", ".join(f"{name} by {way}" for name, way in regraded["how"].items())
    click.echo(f"{told['graded']:,} of {counted(told['episodes'], 'episode')} graded ({clean(how)})")
    if told["graded"]:
        means = f"{told['before']:.4g} before, {told['after']:.4g} now"
        click.echo(f"{told['changed']:,} changed; mean reward of these episodes: {means}")
    if lost := told["not_graded"]:
        click.echo(f"{len(lost):,} not graded:")
        rows = [(row["episode"][:8], row["task"], row["error"], shortened(row["message"])) for row in lost]
        print_table(("EPISODE", "TASK", "ERROR", "WHY"), rows[:MOST_LISTED])
    click.echo(f"run: {shown_path(out)}")
