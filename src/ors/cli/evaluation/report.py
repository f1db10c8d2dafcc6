"""The end of an evaluation: its report, and the exit code that it deserves."""

from collections import Counter
from dataclasses import asdict
from typing import Any

import click

from ors.cli.errors import clean, shown_path
from ors.cli.evaluation.plan import EvalPlan
from ors.cli.output.runs import print_summary, print_tasks
from ors.rollouts.records import Run, check, summarize, task_rows

MOST_TASKS = 20
"""More tasks than this are not listed: `ors runs show --tasks` does."""


def print_report(run: Run, plan: EvalPlan) -> None:
    print_summary(summarize(run.entries))
    rows = task_rows(run.entries)
    if len(rows) <= MOST_TASKS:
        print_tasks(rows)
    for each in check(run.entries):
        click.echo(f"\nfinding: {clean(str(each))}")
    click.echo()
    click.echo(f"reward of an episode: {plan.reward} of the rewards of its steps (--reward)")
    click.echo(f"run: {shown_path(run.folder)}")


def report_json(run: Run) -> dict[str, Any]:
    rows = [asdict(row) for row in task_rows(run.entries)]
    return {
        "run": str(run.folder),
        "config": run.info.config,
        **asdict(summarize(run.entries)),
        "by_task": rows,
        "findings": [asdict(each) for each in check(run.entries)],
    }


def verdict(run: Run, *, fail_under: float | None, max_failed: float) -> tuple[int, str]:
    """Exit code, and why: 3 if too many episodes failed or none counts, 1 if the mean is too low."""
    found, count = summarize(run.entries).reward, len(run.entries)
    failed = Counter(entry.failed_by for entry in run.entries if entry.failed_by)
    if found is None or failed.total() > max_failed * count:
        kinds = "".join(f" --retry {who}" for who in failed) if "agent" in failed else ""
        again = f"ors eval --resume {shown_path(run.folder)}{kinds}"
        who = ", ".join(f"{who} {each:,}" for who, each in failed.most_common())
        return 3, f"{failed.total():,} of {count:,} episodes failed ({who}); to try them again: {again}"
    if fail_under is not None and found.mean < fail_under:
        return 1, f"the mean reward is {found.mean:.4g}, and --fail-under is {fail_under:g}"
    return 0, ""
