"""`ors runs`: lists, shows, compares, checks and exports runs."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ors.cli.errors import CommandError, WrongUsage, clean, shown_path, wrong_usage
from ors.cli.options.shared import EXISTING_FOLDER, Command, CommandGroup, as_json
from ors.cli.output import runs as shown
from ors.cli.output.printing import print_json
from ors.rollouts import records
from ors.rollouts.records import Run, RunError
from ors.rollouts.records.statistics import counted

RUN = click.argument("run", metavar="RUN", type=click.Path(path_type=Path))


@click.group(
    cls=CommandGroup,
    examples=[
        "ors runs list",
        "ors runs show runs/first",
        "ors runs compare runs/first runs/second",
        "ors runs check runs/first --strict",
        "ors runs export runs/first --format openai --out sft.jsonl --min-reward 1",
    ],
)
def runs() -> None:
    """List, show, compare, check and export runs.

    RUN is the folder of a run: one with the file run.json.
    """


def _opened(path: Path) -> Run:
    with wrong_usage(RunError):
        run = records.read_run(path)
    shown.warn_of_skipped([f"{shown_path(path)}: {line}" for line in run.broken], "broken line")
    return run


@runs.command("list", cls=Command, examples=["ors runs list", "ors runs list runs --json"])
@click.argument("folder", type=EXISTING_FOLDER, default=".", metavar="[FOLDER]")
@as_json
def list_runs(folder: Path, as_json: bool) -> None:
    """List the runs below FOLDER, newest first. FOLDER is the current one by default."""
    found = []
    for path in records.find_runs(folder):
        try:
            run = _opened(path)
        except WrongUsage as error:
            click.echo(f"Warning: {error.message}", err=True)
            continue
        found.append((shown_path(path), run, records.summarize(run.entries)))
    found.sort(key=lambda each: -each[1].info.created)
    if as_json:
        print_json([{"run": path, **_described(run), **asdict(summary)} for path, run, summary in found])
    else:
        shown.print_runs(found)


def _described(run: Run) -> dict[str, Any]:
    described = {**asdict(run.info), "broken_lines": [str(line) for line in run.broken]}
    described["agents"] = list(dict.fromkeys(entry.agent for entry in run.entries))
    return described


@runs.command(
    "show",
    cls=Command,
    examples=["ors runs show runs/first", "ors runs show runs/first --tasks", "ors runs show runs/first 0"],
)
@RUN
@click.argument("episode", required=False, metavar="[EPISODE]")
@click.option("--tasks", is_flag=True, help="List the tasks.")
@click.option("--episodes", is_flag=True, help="List the episodes.")
@as_json
def show(run: Path, episode: str | None, tasks: bool, episodes: bool, as_json: bool) -> None:
    """Show the statistics of a run, or one EPISODE by its number or id.

    Failed episodes are left out of all means. Episodes that ended without a reward count as the run says: 0,
    unless --unscored-reward or --truncated-reward chose otherwise. The interval of a mean is that of 95%; its
    error is clustered by task.
    """
    found = _opened(run)
    if episode is not None:
        with wrong_usage(RunError):
            record = found.episode(found.number(episode))
        print_json(records.record_json(record)) if as_json else shown.print_episode(record)
        return
    summary, rows = records.summarize(found.entries), records.task_rows(found.entries)
    if as_json:
        more: dict[str, Any] = {"by_task": [asdict(row) for row in rows]} if tasks else {}
        if episodes:
            more["by_episode"] = [shown.entry_json(*each) for each in enumerate(found.entries)]
        print_json({**_described(found), **asdict(summary), **more})
        return
    shown.print_summary(summary)
    if tasks:
        shown.print_tasks(rows)
    if episodes:
        shown.print_episodes(found.entries)


@runs.command(
    "compare",
    cls=Command,
    examples=["ors runs compare runs/first runs/second", "ors runs compare runs/first runs/second --json"],
)
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@as_json
def compare_runs(first: Path, second: Path, as_json: bool) -> None:
    """Compare two runs task by task.

    Each task is compared with itself, and all count equally. The test of significance is an exact permutation
    test if up to 16 tasks differ, else the paired t-test. Warns if the environment's code differs.
    """
    before, after = _opened(first), _opened(second)
    found = records.compare(before.entries, after.entries)
    if found is None:
        both = f"{shown_path(first)} and {shown_path(second)}"
        raise CommandError(f"{both} share no task that was played to its end")
    for name in before.info.environments.keys() & after.info.environments.keys():
        codes = before.info.environments[name], after.info.environments[name]
        if codes[0].differs(codes[1]):
            text = f"{clean(name)}: {codes[0]} in the first run, {codes[1]} in the second"
            click.echo(f"Warning: the environment differs: {text}", err=True)
    print_json(shown.comparison_json(found)) if as_json else shown.print_comparison(found)


@runs.command(
    "check", cls=Command, examples=["ors runs check runs/first", "ors runs check runs/first --strict"]
)
@RUN
@click.option("--strict", is_flag=True, help="Exit with 1 if there is a finding.")
@as_json
def check_run(run: Path, strict: bool, as_json: bool) -> None:
    """Look for faults and reward hacking in a run.

    Finds failures by kind, tasks that always or never succeed, groups without variance, rewards out of range,
    rewards that grow with length or need no work, one answer to many tasks, and episodes that hit a
    limit or have no reward. What chance explains is not a finding.
    """
    found = records.check(_opened(run).entries)
    if as_json:
        print_json({"run": str(run), "findings": [asdict(each) for each in found]})
    else:
        shown.print_findings(found)
    if strict and found:
        raise click.exceptions.Exit(1)


@runs.command(
    "export",
    cls=Command,
    examples=[
        "ors runs export runs/first --format openai --out sft.jsonl --min-reward 1",
        "ors runs export runs/first --format atif --out trajectories",
        "ors runs export runs/begun --format difficulty --out difficulty.jsonl",
    ],
)
@RUN
@click.option(
    "--format",
    type=click.Choice(records.FORMATS),
    required=True,
    help="openai: Chat Completions; atif: trajectories; difficulty: statistics of each task.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="File of JSON lines (openai, difficulty), or folder of one file per episode (atif).",
)
@click.option("--min-reward", type=float, metavar="REWARD", help="Only episodes with at least this reward.")
@click.option(
    "--outcome",
    "outcomes",
    type=click.Choice(records.OUTCOMES),
    multiple=True,
    help="Only episodes with this outcome. Repeatable.  [default: scored; for atif, all]",
)
@as_json
def export(
    run: Path,
    format: records.ExportFormat,
    out: Path,
    min_reward: float | None,
    outcomes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Export episodes to the formats of other programs.

    openai: one line per episode with the messages and tools of Chat Completions, for supervised fine-tuning.
    atif: trajectories of the Agent Trajectory Interchange Format.
    difficulty: one line per task with the attempts that count, and their mean, variance and length, for
    TaskSampler.from_file and other curricula. A task is named by its content.
    """
    if format == "difficulty" and (min_reward is not None or outcomes):
        raise WrongUsage("--format difficulty counts all episodes: leave out --min-reward and --outcome")
    found = _opened(run)
    wanted = outcomes or (("scored",) if format == "openai" else records.OUTCOMES)
    done = records.export_run(found, format, out, min_reward=min_reward, outcomes=wanted)
    shown.warn_of_skipped(done.skipped, "episode")
    if done.skipped and not done.episodes:
        raise CommandError("No episode was exported")
    if as_json:
        print_json({"out": str(out), **asdict(done)})
    else:
        exported = counted(done.episodes, "episode")
        click.echo(f"Exported {exported} to {shown_path(out)}; left out {done.left_out:,}")
