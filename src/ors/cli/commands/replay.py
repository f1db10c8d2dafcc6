"""`ors replay`: plays the calls of a run again, and shows what differs. `ors regrade` shares its source."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from ors.cli.errors import WrongUsage, clean, shown_path, wrong_usage
from ors.cli.evaluation.plan import selected
from ors.cli.options.shared import TARGET, Command, api_key, as_json, environment, secrets, stacked
from ors.cli.output.printing import print_json, print_table, shortened
from ors.cli.output.runs import warn_of_skipped
from ors.cli.targets.connect import PATIENCE, known_name
from ors.cli.targets.process import reached
from ors.cli.targets.resolve import words
from ors.client import AsyncEnvironment, AsyncORS
from ors.errors import ORSError
from ors.rollouts import EpisodeRecord, task_key
from ors.rollouts.records import Entry, Run, RunError, read_run
from ors.rollouts.records.statistics import counted
from ors.rollouts.regression import Difference, is_replayable, replay

LONGEST_VALUE = 60
SLACK_SECONDS = 30.0
SLOWER = 3
KINDS = {"tools": {"tools"}, "prompt": {"prompt"}, "results": {"result", "finished"}, "rewards": {"reward"}}
"""What `--ignore` takes, and the differences that it leaves out."""
Found = Callable[[str], AsyncEnvironment]
"""Finds an environment by the name that it has in the run."""

run_and_target = stacked(
    click.argument("run", metavar="RUN", type=click.Path(path_type=Path)),
    click.argument("where", metavar="[URL|TARGET]", type=TARGET, required=False),
)
how_to_play = stacked(
    click.option("--concurrency", type=click.IntRange(1, 1024), default=16, help="Concurrent episodes."),
    environment,
    secrets,
    api_key,
    as_json,
)


@dataclass
class Source:
    """A recorded run, and what its episodes are played on."""

    run: Run
    targets: Sequence[str]
    env: str | None
    api_key: str | None
    secrets: Mapping[str, str]
    concurrency: int
    unreadable: list[str] = field(default_factory=list)
    """Why episodes could not be read."""

    @classmethod
    def opened(cls, run: Path, where: str | None, how: Mapping[str, Any]) -> "Source":
        with wrong_usage(RunError):
            read = read_run(run)
        targets = [where] if where is not None else _recorded_targets(read)
        return cls(read, targets, how["env"], how["api_key"], dict(how["secret"]), how["concurrency"])

    @property
    def variant(self) -> list[list[str]]:
        """What `--set` and `--as` said when the run was recorded."""
        return [list(self.run.info.config.get(name) or ()) for name in ("settings", "names")]

    def served(self) -> AbstractContextManager[str]:
        """The URL of a server to play on."""
        return reached(*self.targets, api_key=self.api_key, variant=words(*self.variant))

    def records(self, **chosen: Any) -> Iterator[EpisodeRecord]:
        return self.run.episodes(on_broken=lambda _, error: self.unreadable.append(str(error)), **chosen)

    async def each(
        self,
        url: str,
        records: Iterator[EpisodeRecord],
        work: Callable[[EpisodeRecord, Found], Awaitable[None]],
    ) -> None:
        """Does the work for all records, several at once. Without a URL, it needs no environment."""
        async with AsyncORS(url or "http://127.0.0.1", self.api_key, options=PATIENCE) as client:
            names = await client.list_environments() if url else []

            def found(name: str) -> AsyncEnvironment:
                return client.environment(known_name(names, self.env or name))

            async def take() -> None:
                for record in records:  # the iterator is shared: each takes the next
                    await work(record, found)

            await asyncio.gather(*(take() for _ in range(self.concurrency)))


def _recorded_targets(run: Run) -> list[str]:
    """What a run was recorded with: the TARGETs, or the URL."""
    config = run.info.config
    found = config.get("targets") or config.get("target") or config.get("url")
    targets = [found] if isinstance(found, str) else list(found or ())
    if not targets:
        raise WrongUsage(f"{shown_path(run.folder)} does not say what was played: give a URL or a TARGET")
    return targets


def patience(record: EpisodeRecord) -> float:
    """How long an episode may take: longer than it did, since others are played at the same time."""
    return SLACK_SECONDS + SLOWER * max(0.0, record.seconds)


@dataclass
class _Replayed:
    secrets: Mapping[str, str]
    ignored: set[str]
    episodes: int = 0
    skipped: int = 0
    differences: list[tuple[EpisodeRecord, Difference]] = field(default_factory=list)
    errors: list[tuple[EpisodeRecord, str]] = field(default_factory=list)
    """Episodes that could not be played."""

    async def play(self, record: EpisodeRecord, found: Found) -> None:
        if not is_replayable(record):
            self.skipped += 1
            return
        self.episodes += 1
        seconds = patience(record)
        try:
            async with asyncio.timeout(seconds):
                differences, _ = await replay(found(record.task.environment), record, self.secrets)
        except TimeoutError:
            self.errors.append((record, f"it did not end within {seconds:g} s"))
        except ORSError as error:
            self.errors.append((record, clean(str(error)) or type(error).__name__))
        else:
            self.differences += [(record, each) for each in differences if each.what not in self.ignored]


@click.command(
    "replay",
    cls=Command,
    examples=[
        "ors replay runs/served",
        "ors replay runs/served adder --ignore prompt",
        "ors replay runs/served http://127.0.0.1:8080 --split test --tasks 0:20 --json",
    ],
)
@run_and_target
@click.option("--split", metavar="NAME", multiple=True, help="Only tasks of this split; repeatable.")
@click.option("--tasks", metavar="INDICES", help="Only tasks with these indices, such as 0:100 or 0,3,7:9.")
@click.option(
    "--ignore",
    type=click.Choice(list(KINDS)),
    multiple=True,
    help="Differences to ignore, such as results that contain a time; repeatable.",
)
@how_to_play
def replay_command(
    run: Path,
    where: str | None,
    split: tuple[str, ...],
    tasks: str | None,
    ignore: tuple[str, ...],
    as_json: bool,
    **how: Any,
) -> None:
    """Play the recorded calls of a run again, without a model.

    Prints the tools, prompts, results and rewards that differ from the record; then the exit code is 1.
    Without URL|TARGET, the one that the run was recorded with is used. Episodes that failed before their
    first turn, or because of the infrastructure, are not played. One that takes 30 seconds longer than three
    times its recorded time counts as different.
    """
    source = Source.opened(run, where, how)
    done = _Replayed(source.secrets, {kind for name in ignore for kind in KINDS[name]})
    records = source.records(entries=_chosen(source.run, split, tasks))
    with source.served() as url:
        asyncio.run(source.each(url, records, done.play))
    warn_of_skipped(source.unreadable, "episode")
    for found in (done.differences, done.errors):
        found.sort(key=_order)
    differing = len({record.id for record, _ in (*done.differences, *done.errors)})
    if as_json:
        _print_differences_json(done, differing, len(source.unreadable))
    else:
        _print_differences(done, differing)
    if differing:
        raise click.exceptions.Exit(1)


def _chosen(run: Run, splits: Sequence[str], tasks: str | None) -> list[Entry]:
    entries = [entry for entry in run.entries if not splits or entry.task.split in splits]
    if tasks is not None:
        indices = {entry.task.index for entry in entries if entry.task.index is not None}
        chosen = indices.intersection(selected(tasks, max(indices, default=-1) + 1))
        entries = [entry for entry in entries if entry.task.index in chosen]
    if not entries:
        raise WrongUsage(f"{shown_path(run.folder)} has no episode of these tasks")
    return entries


def _order(found: tuple[EpisodeRecord, Any]) -> tuple[Any, ...]:
    """By task; the differences of one episode stay together, in their order."""
    record, _ = found
    return (*task_key(record.task).order, record.sample, record.id)


def _print_differences_json(found: _Replayed, differing: int, unreadable: int) -> None:
    def about(record: EpisodeRecord) -> dict[str, Any]:
        task = record.task
        place = {"environment": task.environment, "split": task.split, "index": task.index}
        return {"episode": record.id, **place}

    print_json(
        {
            "episodes": found.episodes,
            "skipped": found.skipped,
            "differing": differing,
            "unreadable": unreadable,
            "differences": [{**about(record), **asdict(each)} for record, each in found.differences],
            "errors": [{**about(record), "error": error} for record, error in found.errors],
        }
    )


def _print_differences(found: _Replayed, differing: int) -> None:
    rows = [
        [
            *_place(record),
            str(each.step or "-"),
            each.tool or "-",
            each.what,
            *map(_brief, (each.recorded, each.now)),
        ]
        for record, each in found.differences
    ]
    rows += [[*_place(record), "-", "-", "not played", "", error] for record, error in found.errors]
    if rows:
        print_table(["EPISODE", "TASK", "CALL", "TOOL", "DIFFERS", "RECORDED", "NOW"], rows)
        click.echo()
    click.echo(f"{counted(found.episodes, 'episode')} played, {differing:,} with differences")
    if found.differences:
        kinds = Counter(each.what for _, each in found.differences)
        click.echo(f"differences: {', '.join(f'{kind} {count:,}' for kind, count in kinds.most_common())}")
    if found.skipped:
        why = "they failed for infrastructure or before their first turn, or were recorded without a task"
        click.echo(f"{found.skipped:,} not played: {why}")


def _place(record: EpisodeRecord) -> list[str]:
    return [record.id[:8], f"{record.task.environment} {task_key(record.task).label}"]


def _brief(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(each, dict) and "text" in each for each in value):
        value = " ".join(each["text"] for each in value)
    return shortened(value, LONGEST_VALUE)
