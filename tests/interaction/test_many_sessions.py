"""One process with thousands of sessions."""

import asyncio
import gc
import os
import resource
import sys
import time
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from ors.client import AsyncORS, Task
from tests.support.scale import scaled
from tests.support.server_process import server_elsewhere

SESSIONS = scaled(1000, 5000)
TOOL = {"seconds": 2.0}


@pytest.fixture
def slow() -> Iterator[str]:
    wanted = SESSIONS + 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"{wanted} open files are needed, {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    with server_elsewhere() as (_, url):
        yield url
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def megabytes() -> float:
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def in_batches(work: list[Coroutine[Any, Any, Any]], size: int = 200) -> None:
    for start in range(0, len(work), size):
        await asyncio.gather(*work[start : start + size])


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
async def test_thousands_of_calls_are_in_flight_at_once(
    slow: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with AsyncORS(slow) as client:
        sessions = [client.environment("slow").session(Task("slow", {})) for _ in range(SESSIONS)]
        await in_batches([session.start() for session in sessions])
        took, memory = [], []
        for _ in range(3):
            started = time.perf_counter()
            outputs = await asyncio.gather(*(session.call_tool("wait", TOOL) for session in sessions))
            took.append(time.perf_counter() - started)
            memory.append(megabytes())
            seen: list[Any] = [output.metadata["together"] for output in outputs if output.metadata]
            assert len(seen) == SESSIONS
        await in_batches([session.close() for session in sessions])
    with capsys.disabled():
        print(f"\n{SESSIONS} calls of 2 s: {max(seen)} at once; took {took} s; memory {memory} MB")
    assert max(seen) > SESSIONS / 2
    assert memory[2] < memory[1] * 1.1
