"""Storms of clients that give up: nothing of them stays on the server."""

import asyncio
import random
import socket
from collections import Counter
from contextlib import suppress

import pytest

from bench.watched import Watched, watched
from ors.client import AsyncORS, Task
from ors.errors import ORSError
from tests.attack.conftest import Scale, Tally
from tests.attack.wire import reset

pytestmark = pytest.mark.xdist_group("attack-storms")

LIMITS = {"kept_seconds": 1}
"""Sessions do not expire by themselves here: those that are left are seen."""
AT_ONCE = 20
SETTLING_SECONDS = 30.0
STEP_SECONDS = 0.004


async def opened(client: AsyncORS, calls: int) -> None:
    """An episode of a session."""
    async with client.environment("rough").session(Task("rough", {})) as session:
        for number in range(calls):
            await session.call_tool("slow" if number else "echo", {"call": -1})


async def cancelled(url: str, chosen: random.Random, calls: int) -> str:
    """An episode that is cancelled somewhere; says whether it was."""
    async with AsyncORS(url) as client:
        playing = asyncio.create_task(opened(client, calls))
        for _ in range(chosen.randrange(12)):  # a few steps of its own, more where the loop is busy
            await asyncio.sleep(chosen.random() * STEP_SECONDS)
        playing.cancel()
        try:
            await playing
            return "ended"
        except asyncio.CancelledError:
            return "cancelled"
        except ORSError as error:
            return type(error).__name__


async def storm(url: str, count: int, calls: int, seed: str) -> Counter[str]:
    """So many episodes, some at a time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> str:
        async with gate:
            return await cancelled(url, random.Random(f"{seed}.{number}"), calls)

    return Counter(await asyncio.gather(*(one(number) for number in range(count))))


async def settled(server: Watched, count: int, calls: int, seed: str) -> tuple[Counter[str], dict[str, int]]:
    """The outcome of a storm, and what is left of it."""
    before = await server.left()
    became = await storm(server.url, count, calls, seed)
    left = await server.settled(before, SETTLING_SECONDS)
    return became, left.beyond(before)


@pytest.mark.parametrize(("calls", "what"), [(0, "starts"), (3, "episodes")])
def test_cancelled_clients_leave_nothing_behind(calls: int, what: str, scale: Scale, tally: Tally) -> None:
    with watched(LIMITS) as server:
        became, beyond = asyncio.run(settled(server, scale.of(60, 1500), calls, f"{scale.seed}.{what}"))
        assert became["cancelled"] > 0, became
        assert set(became) <= {"cancelled", "ended"}, became
        assert not beyond, f"still running at exit: {beyond} of {became}"
        assert server.alive
    tally(
        f"cancelled {what}",
        f"{became.total():,}, {became['cancelled']:,} cancelled on the way: nothing is left",
    )


async def cut(server: Watched, count: int, chosen: random.Random) -> dict[str, int]:
    """Connections that are reset in the middle of creations and calls, then their sessions' deletion."""
    before = await server.left()
    async with (
        AsyncORS(server.url) as client,
        client.environment("rough").session(Task("rough", {})) as session,
    ):
        body = b'{"name":"%b","input":{"call":-1}}' % chosen.choice((b"slow", b"echo"))
        head = f"POST /rough/call HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: {session.sid}\r\n".encode()
        asked = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        for number in range(count):
            await asyncio.to_thread(_cut, server.port, asked, chosen.randrange(len(asked) + 1))
            if number % 20 == 0:
                await session.call_tool("echo", {"call": -1})
    return (await server.settled(before, SETTLING_SECONDS)).beyond(before)


def _cut(port: int, asked: bytes, at: int) -> None:
    end = socket.create_connection(("127.0.0.1", port), 20)
    with suppress(OSError):
        end.sendall(asked[:at])
    reset(end)


def test_connections_that_are_reset_leave_nothing_behind(scale: Scale, tally: Tally) -> None:
    count = scale.of(200, 4000)
    with watched(LIMITS) as server:
        beyond = asyncio.run(cut(server, count, random.Random(scale.seed)))
        assert not beyond, f"still running at exit: {beyond}"
        assert "Traceback" not in server.errors(), server.errors()[-2000:]
    tally("connections reset at a random byte", f"{count:,}: nothing is left, nothing is logged")
