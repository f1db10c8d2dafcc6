"""Load for `ors bench`: runs episodes at a given concurrency and measures them."""

import asyncio
import itertools
import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ors.client import AsyncEnvironment
from ors.errors import ORSError, ToolCallError, ToolFailed

OVERTIME_SECONDS = 5.0
"""Time for running calls to finish after the measurement has ended."""
PAUSE_SECONDS = 0.1
MOST_KINDS_OF_ERRORS = 20
MOST_TASKS = 1000


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
        """Indices of the tasks, repeated without end."""
        return itertools.cycle(range(min(self.num_tasks, MOST_TASKS)))


class Latencies:
    """Histogram of durations with buckets 2% wide, so memory stays constant."""

    _WIDTH = 50

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0
        self.highest = 0.0

    def add(self, seconds: float) -> None:
        self._buckets[round(math.log(max(seconds, 1e-9)) * self._WIDTH)] += 1
        self.count += 1
        self.highest = max(self.highest, seconds)

    def percentile(self, percent: float) -> float | None:
        """Percentile in milliseconds; None without durations."""
        rest = self.count * percent / 100
        for bucket, count in sorted(self._buckets.items()):
            rest -= count
            if rest <= 0:
                return 1000 * min(math.exp(bucket / self._WIDTH), self.highest)
        return None


@dataclass
class Tally:
    """Counts and latencies of one server."""

    seconds: float = 0.0
    episodes: int = 0
    calls: Latencies = field(default_factory=Latencies)
    opened: Latencies = field(default_factory=Latencies)
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def error_count(self) -> int:
        return sum(self.errors.values())

    def fail(self, error: Exception | str) -> None:
        """Counts an error by its type and text."""
        kind = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        kind = " ".join(kind.split())[:120]
        known = kind in self.errors or len(self.errors) < MOST_KINDS_OF_ERRORS
        self.errors[kind if known else "other errors"] += 1

    def per_second(self, count: int) -> float:
        return count / self.seconds if self.seconds else 0.0


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
