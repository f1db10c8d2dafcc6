"""Prints runs: summaries, comparisons and episodes."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any, assert_never

import click

from ors.cli.errors import clean
from ors.cli.output.printing import number, print_table, reward_text, shortened
from ors.rollouts import (
    AgentMessage,
    EpisodeRecord,
    Failed,
    Refused,
    Scored,
    SystemMessage,
    ToolMessage,
    Truncated,
    Unscored,
    UserMessage,
    task_key,
)
from ors.rollouts.records import Comparison, Entry, Estimate, Finding, Row, Run, Summary, TaskChange
from ors.rollouts.records.statistics import counted
from ors.types import Block, described

MOST_CHANGES = 10
LONGEST_BLOCK = 2000
MOST_IDS = 5
LATENCIES = {"episode": "episode", "model": "model request", "call": "call"}
"""What the names of latencies stand for."""
TESTS = {"permutation": "exact permutation test, paired by task", "t": "paired t-test by task"}


def outcome(entry: Entry | EpisodeRecord) -> str:
    """Formats an outcome: "scored", or "failed: infrastructure, call"."""
    found = entry.outcome
    match found:
        case Scored() | Unscored() | Refused():
            return found.type
        case Truncated():
            return f"truncated: {found.limit}"
        case Failed():
            return f"failed: {found.who}, {found.stage}"
        case _:
            assert_never(found)


def warn_of_skipped(reasons: Sequence[str], what: str, done: str = "skipped") -> None:
    """Says in one line how many episodes or lines were skipped, and why the first was."""
    if reasons:
        first = clean(shortened(reasons[0], 500))
        click.echo(f"Warning: {done} {counted(len(reasons), what)}; the first: {first}", err=True)


def print_runs(rows: Iterable[tuple[str, Run, Summary]]) -> None:
    print_table(
        ("RUN", "BEGUN", "AGENT", "ENVIRONMENT", "EPISODES", "REWARD", "NO REWARD", "FAILED"),
        [
            (
                path,
                _when(run.info.created),
                _names(entry.agent for entry in run.entries),
                _names(entry.task.environment for entry in run.entries),
                number(summary.episodes),
                _or_dash(summary.reward),
                number(summary.unrewarded),
                number(summary.outcomes.get("failed", 0)),
            )
            for path, run, summary in rows
        ],
    )


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else "-"


def _names(names: Iterable[str]) -> str:
    return shortened(", ".join(dict.fromkeys(name or "-" for name in names)) or "-", 60)


def _or_dash(value: Estimate | None) -> str:
    return "-" if value is None else str(value)


def print_summary(summary: Summary) -> None:
    click.echo(f"mean reward: {_explained(summary.reward)}")
    click.echo(summary.size + summary.caveats)
    click.echo(f"outcomes: {_counts(summary.outcomes)}")
    if summary.truncated:
        click.echo(f"truncated by: {_counts(summary.truncated)}")
    click.echo(f"per episode: {summary.turns:.1f} turns, {summary.calls:.1f} calls")
    usage = summary.usage
    if usage.unknown:
        click.echo(f"usage: not reported for {counted(usage.unknown, 'model request')}")
    if usage.input_tokens or usage.output_tokens:
        cached = f" ({number(usage.cached_tokens)} cached)" if usage.cached_tokens else ""
        click.echo(f"tokens: {number(usage.input_tokens)} in{cached}, {number(usage.output_tokens)} out")
    if usage.cost is not None or usage.unknown:
        click.echo("cost: unknown" if usage.cost is None else f"cost: {usage.cost:.4g}")
    _print_tables(summary)


def _explained(reward: Estimate | None) -> str:
    if reward is None:
        return "none, because no episode was played to its end"
    if reward.error is None:
        return f"{reward} (one task, so no interval)"
    return f"{reward} (95% interval, clustered by task; standard error {reward.error:.3g})"


def _print_tables(summary: Summary) -> None:
    splits = [(row.name, number(row.tasks), *_figures(row)) for row in summary.splits]
    _table(("SPLIT", "TASKS", "EPISODES", "WITH REWARD", "REWARD", "FAILED"), splits)
    components = [(name, str(mean)) for name, mean in summary.components.items()]
    _table(("COMPONENT", "REWARD"), components, most=MOST_CHANGES)
    passes = [
        (str(each.k), f"{each.any:.4g}", f"{each.all:.4g}", number(each.tasks)) for each in summary.passes
    ]
    _table(("K", "PASS@K", "PASS^K", "TASKS"), passes)
    latencies = [
        (f"of each {LATENCIES[name]}", f"{each.p50:.3g}", f"{each.p95:.3g}", number(each.count))
        for name, each in summary.latencies.items()
    ]
    _table(("SECONDS", "P50", "P95", "COUNT"), latencies)
    failures = [
        (each.who, each.stage, number(each.count), shortened(f"{each.error}: {each.message}"))
        for each in summary.failures
    ]
    _table(("FAILED", "AT", "EPISODES", "FIRST ERROR"), failures)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], most: int | None = None) -> None:
    """Prints a table, or at most so many of its rows; nothing without rows."""
    if not rows:
        return
    click.echo()
    print_table(columns, rows[:most])
    if most is not None and len(rows) > most:
        click.echo(f"and {number(len(rows) - most)} more; see --json")


def print_tasks(rows: Sequence[Row]) -> None:
    cells = [(row.name, *_figures(row)) for row in rows]
    _table(("TASK", "EPISODES", "WITH REWARD", "REWARD", "FAILED"), cells)


def _figures(row: Row) -> tuple[str, ...]:
    return number(row.episodes), number(row.rewarded), _or_dash(row.reward), number(row.failed)


def print_episodes(entries: Sequence[Entry]) -> None:
    _table(
        ("NUMBER", "ID", "TASK", "SAMPLE", "OUTCOME", "REWARD", "TURNS", "CALLS", "SECONDS"),
        [
            (
                str(place),
                entry.id[:8],
                entry.task.label,
                str(entry.sample),
                outcome(entry),
                reward_text(entry.reward, entry.components),
                str(entry.turns),
                str(entry.calls),
                f"{entry.seconds:.3g}",
            )
            for place, entry in enumerate(entries)
        ],
    )


def print_episode(record: EpisodeRecord) -> None:
    task = clean(f"{record.task.environment} {task_key(record.task).label}")
    click.echo(f"episode {clean(record.id)} of {task}, sample {record.sample}")
    for each in (*record.earlier, record):
        attempt = "" if each is record else "earlier "
        click.echo(f"{attempt}outcome: {outcome(each)}")
        if isinstance(failed := each.outcome, Failed):
            ran = " (a call may have run)" if failed.may_have_run else ""
            click.echo(f"{attempt}error: {clean(shortened(f'{failed.error}: {failed.message}', 500))}{ran}")
    reward = reward_text(record.reward, record.components)
    click.echo(f"reward: {reward}, seconds: {record.seconds:.3g}")
    if record.task.spec is not None:
        click.echo(f"task: {clean(shortened(record.task.spec, LONGEST_BLOCK))}")
    for message in record.messages:
        click.echo()
        match message:
            case SystemMessage():
                click.echo(f"system: {clean(message.text)}")
            case UserMessage():
                click.echo(f"user: {_blocks(message.blocks)}")
            case AgentMessage():
                _print_reply(message)
            case ToolMessage():
                _print_result(message)
            case _:
                assert_never(message)


def _print_reply(message: AgentMessage) -> None:
    if message.text or not message.calls:
        click.echo(f"agent: {clean(message.text)}")
    for call in message.calls:
        given = call.input if call.raw is None else call.raw
        click.echo(f"agent calls {clean(call.name)} {clean(shortened(given, LONGEST_BLOCK))}")


def _print_result(message: ToolMessage) -> None:
    refused = "" if message.ok else " refuses"
    click.echo(f"{clean(message.name)}{refused}: {_blocks(message.blocks)}")
    if message.reward is not None:
        click.echo(f"reward: {reward_text(message.reward, message.components)}")
    if message.finished:
        click.echo("finished")
    if more := {k: v for k, v in (message.metadata or {}).items() if v != message.components}:
        click.echo(f"metadata: {clean(shortened(more, LONGEST_BLOCK))}")


def _blocks(blocks: Sequence[Block]) -> str:
    text = clean(described(blocks))
    return text if len(text) <= LONGEST_BLOCK else text[: LONGEST_BLOCK - 1] + "…"


def print_comparison(found: Comparison) -> None:
    about = "" if found.difference.error is None else " (95% interval)"
    click.echo(f"difference: {found.difference}{about}, from {found.before:.4g} to {found.after:.4g}")
    if found.p is None:
        click.echo("significance: unknown, because one task is not enough")
    else:
        word = "significant" if found.is_significant else "not significant"
        click.echo(f"significance: p = {found.p:.3g}, {word} at 0.05 ({TESTS[found.test]})")
    click.echo(
        f"{counted(len(found.changes), 'task')} in both runs; "
        f"{number(found.only_before)} only in the first, {number(found.only_after)} only in the second"
    )
    components = [
        (name, *_change(each), str(each.difference), "-" if each.p is None else f"{each.p:.3g}")
        for name, each in found.components.items()
    ]
    _table(("COMPONENT", "FIRST", "SECOND", "DIFFERENCE", "P"), components, most=MOST_CHANGES)
    for title, changes in (("BETTER", found.better), ("WORSE", found.worse)):
        tasks = [
            (each.task.label, *_change(each), f"{each.difference:+.4g}", ", ".join(map(str, each.episodes)))
            for each in changes
        ]
        _table((title, "FIRST", "SECOND", "DIFFERENCE", "EPISODES"), tasks, most=MOST_CHANGES)


def _change(found: Comparison | TaskChange) -> tuple[str, str]:
    return f"{found.before:.4g}", f"{found.after:.4g}"


def print_findings(findings: Sequence[Finding]) -> None:
    """Prints each finding with what to do, and the first episodes behind it."""
    for each in findings:
        ids = ", ".join(id[:8] for id in each.episodes[:MOST_IDS])
        if (more := len(each.episodes) - MOST_IDS) > 0:
            ids += f" and {more:,} more"
        click.echo(f"{clean(each.text)}\n  {each.advice}.\n  episodes: {clean(ids)}")
    click.echo(counted(len(findings), "finding") if findings else "No findings.")


def _counts(counts: Any) -> str:
    return ", ".join(f"{name} {number(count)}" for name, count in counts.items()) or "none"


def entry_json(place: int, entry: Entry) -> dict[str, Any]:
    found = asdict(entry)
    task = found.pop("task")
    for key in ("part", "offset", "size", "model_seconds", "call_seconds", "scoring", "actions", "range"):
        del found[key]
    more = {"score": entry.score, "turns": entry.turns, "calls": entry.calls}
    return {"number": place, **found, **task, **more}


def comparison_json(found: Comparison) -> dict[str, Any]:
    changes = [{**asdict(change), "difference": change.difference} for change in found.changes]
    components = {name: comparison_json(each) for name, each in found.components.items()}
    more = {"changes": changes, "components": components, "significant": found.is_significant}
    return {**asdict(replace(found, components={})), **more}
