"""What an evaluation prints: counts while it runs, then its report, and the exit code that it deserves."""

import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import click

from ors.cli.errors import clean, shown_path
from ors.cli.evaluation.plan import EvalPlan
from ors.cli.output.runs import print_summary, print_tasks
from ors.rollouts import EpisodeRecord, RunningEpisode, TaskKey, Usage, task_key
from ors.rollouts.episodes.scoring import BY_DEFAULT, Scoring
from ors.rollouts.records import Entry, Estimate, Finding, Health, Run, check, entry_of, summarize, task_rows
from ors.rollouts.records.statistics import mean_score


@dataclass
class EvalTally:
    """Counts of the episodes that have ended."""

    total: int
    """Episodes to play, with those of earlier runs."""
    scoring: Scoring = BY_DEFAULT
    range: tuple[float, float] | None = None
    """The least and the highest reward that the environment declares."""
    done: int = 0
    unrewarded: int = 0
    """Episodes that ended without a reward, and count as `scoring` says."""
    rewards: dict[TaskKey, list[float]] = field(default_factory=dict)
    """What the episodes count as, by task; failed ones are left out."""
    usage: Usage = field(default_factory=Usage)
    failures: Counter[str] = field(default_factory=Counter)
    health: Health = field(default_factory=Health)
    running: Callable[[], Sequence[RunningEpisode]] = tuple
    """The episodes that run, the oldest first."""
    findings: list[Finding] = field(default_factory=list)

    def add(self, record: EpisodeRecord | Entry) -> None:
        """Counts an episode, as it was played or as the index of its run has it."""
        entry = (
            record
            if isinstance(record, Entry)
            else replace(entry_of(record), scoring=self.scoring, range=self.range)
        )
        self.done += 1
        self.usage += entry.usage
        if entry.failed_by:
            self.failures[entry.failed_by] += 1
        if (score := entry.score) is not None:
            self.rewards.setdefault(entry.task, []).append(score)
            self.unrewarded += entry.reward is None
        self.findings += self.health.add([entry])

    def mean(self) -> Estimate | None:
        """The mean reward so far, with its interval. Another thread may ask for it."""
        return mean_score(list(map(tuple, list(self.rewards.values()))), self.range)


REFRESH_SECONDS = 0.25
"""On a terminal."""
FIRST_SECONDS = 2.0
LINE_SECONDS = 10.0
"""Without a terminal: a line after the first pause, then one each of these."""


@contextmanager
def live_table(tally: EvalTally) -> Iterator[None]:
    """Shows the counts while the block runs: as a table on a terminal, else as a line from time to time."""
    over = threading.Event()
    shower = threading.Thread(target=_show, args=(tally, over, sys.stderr.isatty()), daemon=True)
    shower.start()
    try:
        yield
    finally:
        over.set()
        shower.join()


def _show(tally: EvalTally, over: threading.Event, on_terminal: bool) -> None:
    began, told, drawn, ended = time.monotonic(), 0, 0, False
    pause = 0.0 if on_terminal else FIRST_SECONDS
    while not ended:
        ended = over.wait(pause)
        new = [f"Finding: {clean(str(each))}" for each in tally.findings[told:]]
        told += len(new)
        shown = [] if ended else rows(tally, time.monotonic() - began)
        pause = REFRESH_SECONDS if on_terminal else LINE_SECONDS
        if on_terminal:
            width = shutil.get_terminal_size().columns - 1
            table = [f"{name:16}  {value}"[:width] for name, value in shown]
        else:
            table = ["  ".join(f"{name} {value}" for name, value in shown if value != "-")] * bool(shown)
        before = f"\x1b[{drawn}F\x1b[J" if drawn else ""
        click.echo(before + "".join(f"{line}\n" for line in (*new, *table)), nl=False, err=True)
        drawn = len(table) if on_terminal else 0


def rows(tally: EvalTally, seconds: float) -> list[tuple[str, str]]:
    usage = tally.usage
    mean = tally.mean()
    return [
        ("done", f"{tally.done:,} of {tally.total:,}"),
        ("running", _stages(tally.running())),
        ("mean reward", "-" if mean is None else str(mean)),
        ("without a reward", f"{tally.unrewarded:,}" if tally.unrewarded else "-"),
        ("tokens", f"{usage.input_tokens:,} in, {usage.output_tokens:,} out"),
        ("cost", "unknown" if usage.unknown else "-" if usage.cost is None else f"{usage.cost:.4g}"),
        ("failed", ", ".join(f"{count:,} {who}" for who, count in sorted(tally.failures.items())) or "0"),
        ("time", f"{seconds:,.0f} s"),
    ]


def _stages(running: Sequence[RunningEpisode]) -> str:
    """How many episodes are at each stage, and the oldest of them."""
    if not running:
        return "0"
    counts = Counter(each.stage for each in running)
    stages = ", ".join(f"{count:,} {stage}" for stage, count in counts.items())
    return f"{stages} (the oldest: {running[0].seconds:.0f} s, {task_key(running[0].task).label})"


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
