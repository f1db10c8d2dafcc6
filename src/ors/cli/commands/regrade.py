"""`ors regrade`: recomputes the rewards of a recorded run, without the agent."""

import asyncio
import inspect
from collections.abc import Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
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
        told = _regraded(_Graders(source), out)
    except RunError as error:
        raise WrongUsage(str(error)) from None
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    warn_of_skipped([*map(str, source.run.broken), *source.unreadable], "episode")
    if as_json:
        print_json({"run": str(out), **told})
    else:
        _print_regraded(told, out)
    if not told["graded"]:
        raise CommandError("No episode could be graded")


def _regraded(graders: "_Graders", out: Path) -> dict[str, Any]:
    """Writes the new run; returns what it says about itself, and what was not graded."""
    source = graders.source
    out.parent.mkdir(parents=True, exist_ok=True)
    # It becomes `out` at the end: what is interrupted leaves no run.
    with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as staging, ExitStack() as stack:
        url = stack.enter_context(source.served()) if None in graders.classes.values() else ""
        folder, info = Path(staging, out.name), graders.info()
        with RunWriter.create(folder, info) as writer:

            async def work(record: EpisodeRecord, found: Found) -> None:
                writer.append(await graders.regrade(record, found))

            async def all_work() -> None:
                # A `grade` that hangs keeps neither other episodes waiting nor the process alive.
                asyncio.get_running_loop().set_default_executor(Executor(Threads()))
                await source.each(url, source.records(), work)

            asyncio.run(stopped_by_signals(all_work()))
            told = {**info.config["regraded"], **_changes(source.run, read_run(folder))}
            kept = {name: value for name, value in told.items() if name != "not_graded"}
            writer.describe(replace(info, config={**info.config, "regraded": kept}))
        folder.replace(out)
    return told


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
        info = source.run.info
        self._rewards = dict(info.rewards)
        chosen: Any = info.config.get("reward")
        self._rules = Rules(reward=chosen if chosen in get_args(ReductionName) else "sum")
        if as_url(source.targets[0]) is None:
            known = {cls.name().lower(): cls for cls in environments(source.targets, *source.variant)}
            for name in names:
                cls = known[known_name(list(known), source.env or name)]
                self.classes[name] = cls if has_grade(cls) else None
                self._code[name], self._rewards[name] = cls._identity(), cls._rewards

    async def regrade(self, record: EpisodeRecord, found: Found) -> EpisodeRecord:
        name, secrets = record.task.environment, self.source.secrets
        if self.classes[name] is None:
            new = await played_again(found(name), record, self._rules, secrets, patience(record))
        else:
            new = await graded(record, self._grader)
        new = replace(new, version=None, hash=None)  # the writer knows the code of the new rewards
        return new.masked(mask_secrets(secrets)) if secrets else new

    async def _grader(self, task: TaskRef) -> Grader:
        cls, key = self.classes[task.environment], task_key(task)
        assert cls is not None
        if key not in self._tasks:
            spec: Any = task.spec
            if not task.is_whole:
                spec = await asyncio.to_thread(cls.get_task, str(task.split), int(task.index or 0))
            self._tasks[key] = await spec if inspect.isawaitable(spec) else spec
        return cls(deepcopy(self._tasks[key]), dict(self.source.secrets)).grade  # type: ignore[no-any-return]

    def info(self) -> RunInfo:
        """Describes the new run. It has no model, so that `ors eval --resume` does not play into it."""
        old, targets = self.source.run.info, self.source.targets
        here = None if as_url(targets[0]) else roots(targets)[0]
        info = replace(RunInfo.gathered({}, target=here), kind=old.kind, rewards=self._rewards)
        code = {name: asdict(each) for name, each in self._code.items()}
        regraded = {
            "source": str(self.source.run.folder),
            "created": old.created,
            "grader": {"target": list(targets), "environments": code, "git": info.git and asdict(info.git)},
            "how": {name: "replay" if cls is None else "grade" for name, cls in self.classes.items()},
        }
        config = {**old.config, "target": targets[0], "regraded": regraded}
        config.pop("model", None)
        return replace(info, environments=self._code, config=config)


def _changes(source: Run, new: Run) -> dict[str, Any]:
    before = {entry.id: entry for entry in source.entries}
    scores = [(before[each.id].score, each.score) for each in new.entries]
    both = [(old, now) for old, now in scores if old is not None and now is not None]
    return {
        "episodes": len(new.entries),
        "graded": len(both),
        "changed": sum(old != now for old, now in both),
        "before": mean_of([old for old, _ in both]) if both else None,
        "after": mean_of([now for _, now in both]) if both else None,
        "not_graded": [
            {"episode": each.id, "task": each.task.label, **asdict(each.outcome)}
            for each in new.entries
            if isinstance(each.outcome, Failed) and not before[each.id].failed_by
        ],
    }


def _print_regraded(told: Mapping[str, Any], out: Path) -> None:
    how = ", ".join(f"{name} by {way}" for name, way in told["how"].items())
    click.echo(f"{told['graded']:,} of {counted(told['episodes'], 'episode')} graded ({clean(how)})")
    if told["graded"]:
        means = f"{told['before']:.4g} before, {told['after']:.4g} now"
        click.echo(f"{told['changed']:,} changed; mean reward of these episodes: {means}")
    if lost := told["not_graded"]:
        click.echo(f"{len(lost):,} not graded:")
        rows = [(row["episode"][:8], row["task"], row["error"], shortened(row["message"])) for row in lost]
        print_table(("EPISODE", "TASK", "ERROR", "WHY"), rows[:MOST_LISTED])
    click.echo(f"run: {shown_path(out)}")
