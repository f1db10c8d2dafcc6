"""A server killed under a hundred calls: every client is told, and none hangs."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ors.client import AsyncORS, AsyncSession, Options, Task
from ors.errors import CallOutcomeUnknown, ORSError, SessionLost
from tests.support.server_process import server_elsewhere

CALLS = 100
LONG = {"seconds": 600}


@asynccontextmanager
async def begun(client: AsyncORS) -> AsyncIterator[list["asyncio.Task[object]"]]:
    """A hundred calls that run on the server."""
    environment = client.environment("slow")

    async def opened() -> AsyncSession:
        return await environment.session(Task("slow", {})).start()

    sessions = await asyncio.gather(*(opened() for _ in range(CALLS)))
    running = [asyncio.Event() for _ in sessions]
    calls: list[asyncio.Task[object]] = [
        asyncio.create_task(session.call_tool("wait", LONG, on_task_id=lambda _, e=event: e.set()))  # type: ignore[misc]
        for session, event in zip(sessions, running, strict=True)
    ]
    await asyncio.gather(*(event.wait() for event in running))
    yield calls
    for call in calls:
        call.cancel()


async def errors(calls: list["asyncio.Task[object]"]) -> list[BaseException | object]:
    """What each call ended with. One that hangs is ended by the test's time limit; how fast: bench.killed."""
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_all_hundred_are_told_once_the_server_is_there_again() -> None:
    with server_elsewhere() as (process, url):
        async with AsyncORS(url) as client, begun(client) as calls:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            with server_elsewhere(int(url.rpartition(":")[2])) as (_, again):
                assert again == url
                found = await errors(calls)
    assert [type(error) for error in found] == [SessionLost] * CALLS, found


async def test_all_hundred_are_told_when_the_server_stays_away() -> None:
    brief = Options(rejoins=3, backoff_seconds=0.05)
    with server_elsewhere() as (process, url):
        async with AsyncORS(url, options=brief) as client, begun(client) as calls:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            found = await errors(calls)
    assert {type(error) for error in found} == {CallOutcomeUnknown}
    assert all(isinstance(error, ORSError) and error.who for error in found)
