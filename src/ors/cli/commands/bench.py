"""`ors bench`: measures calls and episodes per second."""

import asyncio
import itertools
import math
import sys
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import click

from ors import ToolSpec
from ors.cli.errors import WrongUsage, wrong_usage
from ors.cli.options.shared import COUNT, JSON, WHERE, Command, api_key, as_json, environment
from ors.cli.output.printing import print_json, print_table, shortened
from ors.cli.targets.connect import PATIENCE, known_name
from ors.cli.targets.process import reached
from ors.client import AsyncEnvironment, AsyncORS
from ors.errors import ORSError, ToolCallError, ToolFailed
from ors.schemas import find_tool, sample, typed_input

OVERTIME_SECONDS = 5.0
"""Time for running calls to finish after the measurement has ended."""
PAUSE_SECONDS = 0.1
MOST_ERRORS = 20
MOST_TASKS = 1000


@dataclass(frozen=True)
class LoadPlan:
    """Steps of each episode: open a task, read its prompt, call one tool several times."""

    tool: str
    input: dict[str, Any]
    split: str
    indices: Iterator[int]
    calls: int
    deadline: float


@dataclass
class Tally:
    seconds: float = 0.0
    episodes: int = 0
    # Eight bytes each: an hour of 10,000 calls per second takes 300 MB.
    calls: "array[float]" = field(default_factory=lambda: array("d"))
    opened: "array[float]" = field(default_factory=lambda: array("d"))
    errors: Counter[str] = field(default_factory=Counter)

    def fail(self, error: Exception | str) -> None:
        kind = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self.errors[" ".join(kind.split())[:120]] += 1

    def figures(self) -> dict[str, float | None]:
        seconds = self.seconds or math.inf
        figures: dict[str, float | None] = {
            "calls_per_second": len(self.calls) / seconds,
            "episodes_per_second": self.episodes / seconds,
        }
        for name, durations in (("call", self.calls), ("open", self.opened)):
            for label, percent in (("p50", 50), ("p90", 90), ("p99", 99), ("max", 100)):
                figures[f"{name}_{label}_ms"] = percentile(durations, percent)
        return figures


def percentile(seconds: Sequence[float], percent: float) -> float | None:
    """Percentile in milliseconds; None without durations."""
    place = math.ceil(len(seconds) * percent / 100) - 1
    return 1000 * sorted(seconds)[place] if seconds else None


async def _episodes(env: AsyncEnvironment, plan: LoadPlan, tally: Tally) -> None:
    while time.perf_counter() < plan.deadline:
        try:
            await _episode(env, plan, tally)
        except ORSError as error:
            tally.fail(error)
            await asyncio.sleep(PAUSE_SECONDS)


async def _episode(env: AsyncEnvironment, plan: LoadPlan, tally: Tally) -> None:
    start = time.perf_counter()
    async with env.session(split=plan.split, index=next(plan.indices)) as session:
        await session.get_prompt()
        tally.opened.append(time.perf_counter() - start)
        for _ in range(plan.calls):
            start = time.perf_counter()
            if start >= plan.deadline:
                return
            finished = False
            try:
                finished = (await session.call_tool(plan.tool, plan.input)).finished
            except (ToolCallError, ToolFailed) as error:
                tally.fail(error)
            tally.calls.append(time.perf_counter() - start)
            if finished:
                break
    tally.episodes += 1


@click.command(
    cls=Command,
    examples=[
        "ors bench adder --seconds 2",
        "ors bench http://127.0.0.1:8080 --input '{\"answer\": 3}' --seconds 2 --concurrency 32",
    ],
)
@WHERE
@click.option("--seconds", type=click.FloatRange(min=0.1), default=5, help="Time to measure for.")
@click.option("--concurrency", type=click.IntRange(1, 100_000), default=8, help="Concurrent episodes.")
@click.option("--calls", type=COUNT, default=10, help="Maximum calls per episode.")
@click.option("--tool", help="Tool to call.  [default: one that needs no input, or the first]")
@click.option("--input", "given", type=JSON, help="Input of the tool.  [default: generated from its schema]")
@environment
@click.option("--split", metavar="NAME", help="Split of the tasks.  [default: the first]")
@api_key
@as_json
def bench(where: str, as_json: bool, api_key: str | None, **how: Any) -> None:
    """Measure calls per second, episodes per second, latencies and errors.

    Episodes run concurrently. Each opens a task, reads the prompt and calls one tool until the episode is
    finished. All load comes from this process. A TARGET is served by a child process.
    """
    tally = Tally()
    with reached(where, api_key=api_key) as url, suppress(KeyboardInterrupt):
        asyncio.run(_measure(url, tally, api_key, as_json, how))
    if as_json:
        counts = {"calls": len(tally.calls), "episodes": tally.episodes, "errors": dict(tally.errors)}
        print_json({"where": where, "seconds": tally.seconds, **counts, **tally.figures()})
    else:
        rows = [(name.replace("_", " "), _figure(value)) for name, value in tally.figures().items()]
        print_table(("", where), [*rows, ("errors", f"{tally.errors.total():,}")])
        for kind, count in tally.errors.most_common(MOST_ERRORS):
            click.echo(f"{count:,} × {kind}", err=True)
    if not tally.seconds or tally.errors:
        raise click.exceptions.Exit(1)


async def _measure(url: str, tally: Tally, api_key: str | None, quiet: bool, how: Mapping[str, Any]) -> None:
    seconds, concurrency = how["seconds"], how["concurrency"]
    async with AsyncORS(url, api_key, options=PATIENCE) as client:
        found = client.environment(known_name(await client.list_environments(), how["env"]))
        plan = await _plan(found, how)
        if not quiet:
            click.echo(f"{plan.tool} {shortened(plan.input)}: {concurrency} concurrent episodes\n")
            if sys.stderr.isatty():
                click.echo(f"Measuring for {seconds:g} s; Ctrl-C ends it early", err=True)
        start = time.perf_counter()
        work = [asyncio.create_task(_episodes(found, plan, tally)) for _ in range(concurrency)]
        try:
            _, late = await asyncio.wait(work, timeout=seconds + OVERTIME_SECONDS)
            for _ in late:
                tally.fail(f"still running {OVERTIME_SECONDS:g} s after the end")
        finally:
            for task in work:
                task.cancel()
            tally.seconds += time.perf_counter() - start
            await asyncio.wait(work, timeout=OVERTIME_SECONDS)


async def _plan(env: AsyncEnvironment, how: Mapping[str, Any]) -> LoadPlan:
    split, tool, given = how["split"] or (await env.list_splits())[0], how["tool"], how["given"]
    num_tasks = await env.num_tasks(split)
    if not num_tasks:
        raise WrongUsage(f"{env.name} has no tasks in {split}")
    async with env.session(split=split, index=0) as session:
        tools = await session.list_tools(terminal=True)
    with wrong_usage(ValueError):
        spec = _easiest(tools) if tool is None else find_tool(tools, tool)
        values = sample(spec.input_schema) if given is None else typed_input(spec, (), given)
    indices = itertools.cycle(range(min(num_tasks, MOST_TASKS)))
    return LoadPlan(spec.name, values, split, indices, how["calls"], time.perf_counter() + how["seconds"])


def _easiest(tools: Sequence[ToolSpec]) -> ToolSpec:
    if not tools:
        raise WrongUsage("The environment has no tool to call")
    return next((spec for spec in tools if not (spec.input_schema or {}).get("required")), tools[0])


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
