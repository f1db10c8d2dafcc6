"""`ors replay`: plays the calls of a run again, and shows what differs."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from ors.cli.errors import WrongUsage, clean, shown_path, wrong_usage
from ors.cli.evaluation.plan import selected
from ors.cli.options.evaluation import POSITIVE
from ors.cli.options.shared import TARGET, Command, api_key, as_json, environment, secrets, stacked
from ors.cli.output.printing import print_json, print_table, shortened
from ors.cli.output.runs import warn_of_skipped
from ors.cli.targets.connect import PATIENCE, greet, known_name
from ors.cli.targets.process import served
from ors.cli.targets.resolve import as_url
from ors.cli.targets.variants import words
from ors.client import AsyncORS
from ors.errors import ORSError
from ors.rollouts import EpisodeRecord, task_key
from ors.rollouts.records import Run, RunError, read_run
from ors.rollouts.records.statistics import counted
from ors.rollouts.regression import Difference, failed_alike, is_replayable, replay

LONGEST_VALUE = 60
SLACK_SECONDS = 30.0
SLOWER = 3
KINDS = {"tools": {"tools"}, "prompt": {"prompt"}, "results": {"result", "finished"}, "rewards": {"reward"}}
"""What `--ignore` takes, and the differences that it leaves out."""

run_and_target = stacked(
    click.argument("run", metavar="RUN", type=click.Path(path_type=Path)),
    click.argument("where", metavar="[URL|TARGET]", type=TARGET, required=False),
)
concurrency_flag = click.option(
    "--concurrency", type=click.IntRange(1, 1024), default=16, help="Concurrent episodes."
)


def patience(record: EpisodeRecord) -> float:
    """How long an episode may take: longer than it did, since others are played at the same time."""
    return SLACK_SECONDS + SLOWER * max(0.0, record.seconds)


def recorded_variant(run: Run) -> list[list[str]]:
    """What `--set` and `--as` said when a run was recorded."""
    return [list(run.info.config.get(name) or ()) for name in ("settings", "names")]


def recorded_targets(run: Run) -> list[str]:
    """What a run was recorded with: the TARGETs, or the URL."""
    config = run.info.config
    found = config.get("targets") or config.get("target") or config.get("url")
    targets = [found] if isinstance(found, str) else list(found or ())
    if not targets:
        raise WrongUsage(f"{shown_path(run.folder)} does not say what was played: give a URL or a TARGET")
    return targets


@dataclass
class _Player:
    secrets: Mapping[str, str]
    ignored: set[str]
    max_seconds: float | None
    episodes: int = 0
    skipped: int = 0
    unreadable: list[str] = field(default_factory=list)
    differences: list[tuple[EpisodeRecord, Difference]] = field(default_factory=list)
    errors: list[tuple[EpisodeRecord, str]] = field(default_factory=list)
    """Episodes that could not be played."""

    async def play(
        self, client: AsyncORS, env: str | None, records: Iterator[EpisodeRecord], concurrency: int
    ) -> None:
        async with client:
            names = await client.list_environments()

            async def play_each() -> None:
                for record in records:  # the iterator is shared: each takes the next
                    if not is_replayable(record):
                        self.skipped += 1
                        continue
                    name = known_name(names, env or record.task.environment)
                    await self._play(client.environment(name), record)

            await asyncio.gather(*(play_each() for _ in range(concurrency)))
        self.differences.sort(key=_order)
        self.errors.sort(key=_order)

    async def _play(self, environment: Any, record: EpisodeRecord) -> None:
        self.episodes += 1
        seconds = self.max_seconds or patience(record)
        try:
            async with asyncio.timeout(seconds):
                differences = await replay(environment, record, self.secrets)
        except TimeoutError:
            self.errors.append((record, f"it did not end within {seconds:g} s"))
        except ORSError as error:
            if not failed_alike(record, error):
                self.errors.append((record, clean(str(error)) or type(error).__name__))
        else:
            self.differences += [(record, each) for each in differences if each.what not in self.ignored]

    @property
    def differing(self) -> int:
        return len({record.id for record, _ in (*self.differences, *self.errors)})


def _order(found: tuple[EpisodeRecord, Any]) -> tuple[Any, ...]:
    """By task; the differences of one episode stay together, in their order."""
    record, _ = found
    return (*task_key(record.task).order, record.sample, record.id)


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
@concurrency_flag
@click.option(
    "--max-seconds",
    type=POSITIVE,
    help=f"Time limit of an episode.  [default: {SLACK_SECONDS:g} s plus {SLOWER} times its recorded time]",
)
@environment
@secrets
@api_key
@as_json
def replay_command(
    run: Path,
    where: str | None,
    split: tuple[str, ...],
    tasks: str | None,
    ignore: tuple[str, ...],
    concurrency: int,
    max_seconds: float | None,
    env: str | None,
    secret: tuple[tuple[str, str], ...],
    api_key: str | None,
    as_json: bool,
) -> None:
    """Play the recorded calls of a run again, without a model.

    Prints the tools, prompts, results and rewards that differ from the record; then the exit code is 1.
    Without URL|TARGET, the one that the run was recorded with is used. Episodes that failed because of
    the infrastructure are not played. One that does not end in time counts as different, and the others go
    on.
    """
    player = _Player(dict(secret), {kind for name in ignore for kind in KINDS[name]}, max_seconds)
    with wrong_usage(RunError), ExitStack() as stack:
        recorded = read_run(run)
        chosen = _chosen(recorded, split, tasks, player.unreadable)
        targets = [where] if where is not None else recorded_targets(recorded)
        variant = words(*recorded_variant(recorded))
        url = as_url(targets[0]) or stack.enter_context(served(*targets, variant=variant))
        greet(url, api_key)
        asyncio.run(player.play(AsyncORS(url, api_key, options=PATIENCE), env, chosen, concurrency))
    warn_of_skipped(player.unreadable, "episode")
    _print_json(player) if as_json else _print(player)
    if player.differing:
        raise click.exceptions.Exit(1)


def _chosen(
    run: Run, splits: Sequence[str], tasks: str | None, unreadable: list[str]
) -> Iterator[EpisodeRecord]:
    entries = [entry for entry in run.entries if not splits or entry.task.split in splits]
    if tasks is not None:
        indices = {entry.task.index for entry in entries if entry.task.index is not None}
        chosen = indices.intersection(selected(tasks, max(indices, default=-1) + 1))
        entries = [entry for entry in entries if entry.task.index in chosen]
    if not entries:
        raise WrongUsage(f"{shown_path(run.folder)} has no episode of these tasks")
    return run.episodes(entries, on_broken=lambda _, error: unreadable.append(str(error)))


def _print_json(found: _Player) -> None:
    def about(record: EpisodeRecord) -> dict[str, Any]:
        task = record.task
        return {
            "episode": record.id,
            "environment": task.environment,
            "split": task.split,
            "index": task.index,
        }

    rows = [{**about(record), **asdict(each)} for record, each in found.differences]
    errors = [{**about(record), "error": error} for record, error in found.errors]
    counts = {"episodes": found.episodes, "skipped": found.skipped, "differing": found.differing}
    print_json({**counts, "unreadable": len(found.unreadable), "differences": rows, "errors": errors})


def _print(found: _Player) -> None:
    rows = [
        [*_place(record), str(each.step or "-"), each.tool or "-", each.what, *_values(each)]
        for record, each in found.differences
    ]
    rows += [[*_place(record), "-", "-", "not played", "", error] for record, error in found.errors]
    if rows:
        print_table(["EPISODE", "TASK", "CALL", "TOOL", "DIFFERS", "RECORDED", "NOW"], rows)
        click.echo()
    click.echo(f"{counted(found.episodes, 'episode')} played, {found.differing:,} with differences")
    if found.differences:
        kinds = Counter(each.what for _, each in found.differences)
        click.echo(f"differences: {', '.join(f'{kind} {count:,}' for kind, count in kinds.most_common())}")
    if found.skipped:
        click.echo(f"{found.skipped:,} not played: failed for infrastructure, or recorded without a task")


def _place(record: EpisodeRecord) -> list[str]:
    return [record.id[:8], f"{record.task.environment} {task_key(record.task).label}"]


def _values(each: Difference) -> list[str]:
    return [shortened(_brief(value), LONGEST_VALUE) for value in (each.recorded, each.now)]


def _brief(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(each, dict) and "text" in each for each in value):
        return " ".join(each["text"] for each in value)
    return value
