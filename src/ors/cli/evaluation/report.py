"""The end of an evaluation: its report, and the exit code that it deserves."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ors.cli.errors import shown_path
from ors.cli.evaluation.plan import EvalPlan
from ors.cli.output.runs import print_summary, print_tasks
from ors.rollouts.records import Run, summarize, task_rows

MOST_TASKS = 20
"""More tasks than this are not listed: `ors runs show --tasks` does."""


def print_report(run: Run, plan: EvalPlan, picture: Path | None) -> None:
    """Prints the figures of a run."""
    print_summary(summarize(run.entries))
    rows = task_rows(run.entries)
    if len(rows) <= MOST_TASKS:
        print_tasks(rows)
    click.echo()
    click.echo(f"reward of an episode: {plan.reward} of the rewards of its steps (--reward)")
    drawn = "" if picture is None else f", picture: {shown_path(picture)}"
    click.echo(f"run: {shown_path(run.folder)}{drawn}")


def report_json(run: Run) -> dict[str, Any]:
    """Value for `--json`."""
    rows = [asdict(row) for row in task_rows(run.entries)]
    return {
        "run": str(run.folder),
        "config": run.info.config,
        **asdict(summarize(run.entries)),
        "by_task": rows,
    }


def verdict(run: Run, *, fail_under: float | None, max_failed: float) -> tuple[int, str]:
    """Exit code, and why: 3 if too many episodes failed for infrastructure, 1 if the mean is too low."""
    lost, count = sum(entry.is_lost for entry in run.entries), len(run.entries)
    if lost > max_failed * count:
        again = f"ors eval --resume {shown_path(run.folder)}"
        return 3, f"{lost:,} of {count:,} episodes failed for infrastructure; to try them again: {again}"
    reward = summarize(run.entries).reward
    if fail_under is not None and (reward is None or reward.mean < fail_under):
        shown = (
            "no episode was played to its end" if reward is None else f"the mean reward is {reward.mean:.4g}"
        )
        return 1, f"{shown}, and --fail-under is {fail_under:g}"
    return 0, ""
