"""Pings of idle sessions, and streams that are silent for too long."""

import asyncio

import pytest

from ors.client import Options
from ors.client.requests.keepalive import Interruptible, KeepAlive
from ors.client.transports.base import Broken
from ors.errors import ServerFailed, Unavailable

QUICK = Options(ping_seconds=0.02, heartbeat_seconds=0.02, ping_failures=2, ping_concurrency=3)


class Idle:
    """A session whose pings are counted; `error` is what they raise."""

    open = 0
    most = 0

    def __init__(self, error: Exception | None = None) -> None:
        self.kept = True
        self.due = self.heard = 0.0
        self.misses = self.pings = 0
        self.error = error
        self.pinged = asyncio.Event()
        self.lost: asyncio.Future[tuple[str, str | None]] = asyncio.get_running_loop().create_future()

    async def ping(self) -> None:
        Idle.open += 1
        Idle.most = max(Idle.most, Idle.open)
        try:
            await asyncio.sleep(0)
            self.pinged.set()
            if self.error is not None:
                raise self.error
        finally:
            Idle.open -= 1

    def lose(self, message: str, reason: str | None = None) -> None:
        self.kept = False
        self.lost.set_result((message, reason))


async def test_pings_that_wait_for_an_answer_are_limited() -> None:
    Idle.open = Idle.most = 0
    keepalive = KeepAlive(QUICK)
    sessions = [Idle() for _ in range(20)]
    now = asyncio.get_running_loop().time()
    for session in sessions:
        keepalive.keep(session)
    for session in sessions:
        session.due = now
    for session in sessions:
        await session.pinged.wait()
    assert Idle.most == QUICK.ping_concurrency
    await keepalive.close()


@pytest.mark.parametrize(
    ("error", "message", "reason"),
    [
        (Unavailable("full"), "cannot be reached, 2 pings in a row failed: full", "unreachable"),
        (ServerFailed("no disk", reason="environment"), "2 pings in a row failed: no disk", "environment"),
        (TimeoutError(), "no answer", "unreachable"),
    ],
)
async def test_a_session_is_lost_with_the_error_of_its_last_ping(
    error: Exception, message: str, reason: str
) -> None:
    keepalive, session = KeepAlive(QUICK), Idle(error)
    keepalive.keep(session)
    text, given = await session.lost
    assert message in text
    assert given == reason
    await keepalive.close()


async def test_only_a_watched_stream_that_is_silent_is_interrupted() -> None:
    keepalive = KeepAlive(QUICK)
    loop = asyncio.get_running_loop()
    silent, patient, ended = Interruptible(), Interruptible(), Interruptible()
    silent.silent_after = ended.silent_after = loop.time()
    for stream in (silent, patient, ended):
        keepalive.watch(stream)
    keepalive.unwatch(ended)
    waits = [asyncio.create_task(_wait(stream)) for stream in (silent, patient, ended)]
    done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    assert done == {waits[0]}
    assert isinstance(waits[0].exception(), Broken)
    keepalive.unwatch(silent)
    await keepalive.close()
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


async def test_the_task_ends_when_nothing_is_left_to_watch() -> None:
    keepalive, stream, before = KeepAlive(QUICK), Interruptible(), asyncio.all_tasks()
    for _ in range(2):  # the second time it begins again
        keepalive.watch(stream)
        (task,) = asyncio.all_tasks() - before
        keepalive.unwatch(stream)
        await task
    await keepalive.close()


async def _wait(stream: Interruptible) -> None:
    with stream:
        await asyncio.Event().wait()
