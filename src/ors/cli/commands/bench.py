"""`ors bench`: measures calls and episodes per second."""

import asyncio
import itertools
import math
import sys
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import click

from ors import JSONObject, ToolSpec
from ors.cli.errors import WrongUsage, wrong_usage
from ors.cli.options.shared import COUNT, JSON, WHERE, Command, api_key, as_json, environment
from ors.cli.output.printing import print_json, print_table, shortened
from ors.cli.targets.connect import PATIENCE, greet, known_name
from ors.cli.targets.process import served
from ors.cli.targets.resolve import as_url
from ors.client import AsyncEnvironment, AsyncORS
from ors.errors import ORSError, ToolCallError, ToolFailed
from ors.schemas import find_tool, sample, typed_input

OVERTIME_SECONDS = 5.0
"""Time for running calls to finish after the measurement has ended."""
PAUSE_SECONDS = 0.1
MOST_KINDS_OF_ERRORS = 20
MOST_TASKS = 1000
PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class LoadPlan:
    """Steps of each episode: open a task, read its prompt, call one tool several times."""

    tool: str
    input: dict[str, Any]
    split: str
    num_tasks: int
    calls: int
    concurrency: int

    def indices(self) -> Iterator[int]:
        return itertools.cycle(range(min(self.num_tasks, MOST_TASKS)))


class Latencies:
    """Durations in seconds. Eight bytes each: an hour of 10,000 calls per second takes 300 MB."""

    def __init__(self) -> None:
        self._seconds = array("d")

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)

    @property
    def count(self) -> int:
        return len(self._seconds)

    def percentile(self, percent: float) -> float | None:
        """Percentile in milliseconds; None without durations."""
        if not self._seconds:
            return None
        return 1000 * sorted(self._seconds)[math.ceil(self.count * percent / 100) - 1]


@dataclass
class Tally:
    seconds: float = 0.0
    episodes: int = 0
    calls: Latencies = field(default_factory=Latencies)
    opened: Latencies = field(default_factory=Latencies)
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def error_count(self) -> int:
        return sum(self.errors.values())

    def fail(self, error: Exception | str) -> None:
        kind = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        kind = " ".join(kind.split())[:120]
        known = kind in self.errors or len(self.errors) < MOST_KINDS_OF_ERRORS
        self.errors[kind if known else "other errors"] += 1

    def per_second(self, count: int) -> float:
        return count / self.seconds if self.seconds else 0.0

    def figures(self) -> dict[str, float | None]:
        figures: dict[str, float | None] = {
            "calls_per_second": self.per_second(self.calls.count),
            "episodes_per_second": self.per_second(self.episodes),
        }
        for name, latencies in (("call", self.calls), ("open", self.opened)):
            figures |= {f"{name}_p{p}_ms": latencies.percentile(p) for p in PERCENTILES}
            figures[f"{name}_max_ms"] = latencies.percentile(100)
        return figures

    def as_json(self) -> dict[str, Any]:
        counts = {"calls": self.calls.count, "episodes": self.episodes, "errors": dict(self.errors)}
        return {"seconds": self.seconds, **counts, **self.figures()}


async def run(env: AsyncEnvironment, plan: LoadPlan, seconds: float, tally: Tally) -> None:
    """Runs episodes for some seconds and adds the measurements to `tally`."""
    start = time.perf_counter()
    indices = plan.indices()
    work = [
        asyncio.create_task(_episodes(env, plan, start + seconds, indices, tally))
        for _ in range(plan.concurrency)
    ]
    try:
        _, late = await asyncio.wait(work, timeout=seconds + OVERTIME_SECONDS)
        for _ in late:
            tally.fail(f"still running {OVERTIME_SECONDS:g} s after the end")
    finally:
        for task in work:
            task.cancel()
        tally.seconds += time.perf_counter() - start
        await asyncio.wait(work, timeout=OVERTIME_SECONDS)


async def _episodes(
    env: AsyncEnvironment, plan: LoadPlan, deadline: float, indices: Iterator[int], tally: Tally
) -> None:
    while time.perf_counter() < deadline:
        try:
            await _episode(env, plan, deadline, next(indices), tally)
        except ORSError as error:
            tally.fail(error)
            await asyncio.sleep(PAUSE_SECONDS)


async def _episode(env: AsyncEnvironment, plan: LoadPlan, deadline: float, index: int, tally: Tally) -> None:
    start = time.perf_counter()
    async with env.session(split=plan.split, index=index) as session:
        await session.get_prompt()
        tally.opened.add(time.perf_counter() - start)
        for _ in range(plan.calls):
            start = time.perf_counter()
            if start >= deadline:
                return
            finished = False
            try:
                finished = (await session.call_tool(plan.tool, plan.input)).finished
            except (ToolCallError, ToolFailed) as error:
                tally.fail(error)
            tally.calls.add(time.perf_counter() - start)
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
@click.option(
    "--concurrency",
    type=click.IntRange(1, 100_000),
    default=8,
    help="Concurrent episodes.",
)
@click.option("--calls", type=COUNT, default=10, help="Maximum calls per episode.")
@click.option("--tool", help="Tool to call.  [default: one that needs no input, or the first]")
@click.option("--input", "given", type=JSON, help="Input of the tool.  [default: generated from its schema]")
@environment
@click.option("--split", metavar="NAME", help="Split of the tasks.  [default: the first]")
@api_key
@as_json
def bench(where: str, seconds: float, as_json: bool, api_key: str | None, **how: Any) -> None:
    """Measure calls per second, episodes per second, latencies and errors.

    Episodes run concurrently. Each opens a task, reads the prompt and calls one tool until the episode is
    finished. All load comes from this process. A TARGET is served by a child process.
    """
    tally, plan = Tally(), None
    with ExitStack() as stack:
        url = as_url(where) or stack.enter_context(served(where))
        greet(url, api_key)
        with suppress(KeyboardInterrupt):
            plan = asyncio.run(_measure(url, tally, seconds, api_key, how, quiet=as_json))
    _print(where, tally, plan, as_json)
    if not tally.seconds or tally.error_count:
        raise click.exceptions.Exit(1)


async def _measure(
    url: str, tally: Tally, seconds: float, api_key: str | None, how: dict[str, Any], quiet: bool
) -> LoadPlan:
    async with AsyncORS(url, api_key, options=PATIENCE) as client:
        env = client.environment(known_name(await client.list_environments(), how.pop("env")))
        plan = await _plan(env, **how)
        if not quiet and sys.stderr.isatty():
            click.echo(f"Measuring for {seconds:g} s; Ctrl-C ends it early", err=True)
        await run(env, plan, seconds, tally)
    return plan


async def _plan(
    env: AsyncEnvironment,
    tool: str | None,
    given: JSONObject | None,
    split: str | None,
    calls: int,
    concurrency: int,
) -> LoadPlan:
    split = split or (await env.list_splits())[0]
    num_tasks = await env.num_tasks(split)
    if not num_tasks:
        raise WrongUsage(f"{env.name} has no tasks in {split}")
    async with env.session(split=split, index=0) as session:
        tools = await session.list_tools(terminal=True)
    with wrong_usage(ValueError):
        spec = _easiest(tools) if tool is None else find_tool(tools, tool)
        values = sample(spec.input_schema) if given is None else typed_input(spec, (), given)
    return LoadPlan(spec.name, values, split, num_tasks, calls, concurrency)


def _easiest(tools: Sequence[ToolSpec]) -> ToolSpec:
    if not tools:
        raise WrongUsage("The environment has no tool to call")
    return next((spec for spec in tools if not (spec.input_schema or {}).get("required")), tools[0])


def _print(where: str, tally: Tally, plan: LoadPlan | None, as_json: bool) -> None:
    if as_json:
        print_json({"where": where, **tally.as_json()})
        return
    if plan is not None:
        click.echo(f"{plan.tool} {shortened(plan.input)}: {plan.concurrency} concurrent episodes\n")
    rows = [(name.replace("_", " "), _figure(value)) for name, value in tally.figures().items()]
    print_table(("", where), [*rows, ("errors", f"{tally.error_count:,}")])
    for kind, count in tally.errors.most_common():
        click.echo(f"{count:,} × {kind}", err=True)


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
