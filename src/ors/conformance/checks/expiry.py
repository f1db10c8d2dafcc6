"""Checks of expiry after fifteen minutes. All are slow."""

import asyncio

from ors.conformance import expect
from ors.conformance.checks import check
from ors.conformance.checks.opening import expect_notes
from ors.conformance.faults import Violation
from ors.conformance.subject import ServerUnderTest


def _nearly(server: ServerUnderTest) -> float:
    """Slightly less than the time after which a session expires."""
    return server.times.idle * 0.9


def _surely(server: ServerUnderTest) -> float:
    """Time after which a session has surely expired."""
    return server.times.idle + server.times.slack


@check("expiry.idle", slow=True)
async def idle(server: ServerUnderTest) -> None:
    """Waits until the session has expired."""
    async with server.session() as episode:
        await episode.get("prompt")
        await asyncio.sleep(_surely(server))
        expect.status(await episode.get("prompt"), 404, 410)


@check("expiry.not-before", slow=True)
async def not_before(server: ServerUnderTest) -> None:
    """Waits for slightly less than the limit."""
    async with server.session() as episode:
        await episode.get("prompt")
        await asyncio.sleep(_nearly(server))
        expect.status(await episode.get("prompt"), 200)


@check("expiry.ping", slow=True)
async def pinged(server: ServerUnderTest) -> None:
    """Pings for longer than the limit."""
    async with server.session() as episode:
        await episode.get("prompt")
        for _ in range(3):
            await asyncio.sleep(_surely(server) * 0.36)
            expect.status(await episode.post("/ping"), 200)


@check("expiry.any-request", slow=True)
async def any_request(server: ServerUnderTest) -> None:
    """Sends discovery requests with the session id."""
    async with server.session() as episode:
        await episode.get("prompt")
        for _ in range(3):
            await asyncio.sleep(_surely(server) * 0.36)
            await server.ask("GET", f"/{server.environment}/tools", sid=episode.sid)
        expect.status(await episode.get("prompt"), 200)


@check("expiry.running-call", probe=True, slow=True)
async def running_call(server: ServerUnderTest) -> None:
    """Runs a call that takes longer than the limit."""
    seconds = _surely(server) + 1
    async with server.session() as episode:
        stream = await episode.call("slow", {"seconds": seconds}, takes=seconds)
        stream.output()
        expect.status(await episode.post("/ping"), 200)


@check("expiry.gone", probe=True, slow=True)
async def gone(server: ServerUnderTest) -> None:
    """Expects 410 and a teardown."""
    run = f"x{server.run[:30]}"
    async with server.session(run=run) as episode:
        await episode.get("prompt")
        await asyncio.sleep(_surely(server))
        answer = await episode.get("prompt")
        if answer.status == 404:
            raise Violation("an expired session gets 404 instead of 410", answer.seen)
        expect.status(answer, 410)
        await expect_notes(server, run, ["setup", "ready", "teardown"])
