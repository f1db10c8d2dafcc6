"""Checks of the life and end of sessions: pings, /delete, state, expiry."""

import asyncio
import uuid
from dataclasses import replace
from typing import Any

from ors.conformance import expect
from ors.conformance.checks import UNKNOWN, answers, check, in_session
from ors.conformance.checks.opening import expect_notes
from ors.conformance.requirements import Violation
from ors.conformance.subject import CheckedSession, ServerUnderTest

CALL: dict[str, Any] = {"name": "no_such_tool", "input": {}}


@in_session("ping.ok")
async def ping(episode: CheckedSession) -> None:
    expect.value(await episode.post("/ping"), {"status": "ok"})


@in_session("delete.ok")
async def delete(episode: CheckedSession) -> None:
    expect.value(await episode.post("/delete"), {"sid": episode.sid})


@check("delete.twice")
async def delete_twice(server: ServerUnderTest) -> None:
    """The client may have missed the first answer."""
    episode = await server.deleted()
    expect.value(await episode.post("/delete"), {"sid": episode.sid})


@check("delete.teardown", "probe")
async def teardown(server: ServerUnderTest) -> None:
    run = uuid.uuid4().hex
    async with server.session(run=run) as episode:
        await episode.get("prompt")
        await episode.post("/delete")
        await expect_notes(server, run, ["setup", "ready", "teardown"])


@check("delete.teardown-once", "probe")
async def teardown_once(server: ServerUnderTest) -> None:
    run = uuid.uuid4().hex
    async with server.session(run=run, teardown_seconds=0.2) as episode:
        await episode.get("prompt")
        await asyncio.gather(*(episode.post("/delete") for _ in range(4)))
    await expect_notes(server, run, ["setup", "ready", "teardown"])


@check("delete.running-call", "probe")
async def running_call(server: ServerUnderTest) -> None:
    async with server.session() as episode, episode.opened("slow", {"seconds": 20}) as live:
        await live.first()
        expect.status(await episode.post("/delete"), 200)
        try:
            async with asyncio.timeout(5):
                (await live.rest()).error()
        except TimeoutError:
            raise Violation("the stream stays open after the session was deleted") from None


@in_session("delete.running-setup", "probe", setup_seconds=60)
async def running_setup(episode: CheckedSession) -> None:
    expect.status(await episode.post("/delete"), 200)
    expect.status(await episode.get("prompt"), 404, 410)


@check("delete.hanging-teardown", "probe", "slow")
async def hanging_teardown(server: ServerUnderTest) -> None:
    """Teardown takes twice the allowed time."""
    limit = server.times.teardown
    async with server.session(teardown_seconds=2 * limit + server.http.patience) as episode:
        await episode.get("prompt")
        patient = replace(server.http, patience=3600)
        asked = asyncio.create_task(patient.ask("POST", "/delete", sid=episode.sid))
        done, _ = await asyncio.wait({asked}, timeout=limit + 5)
        if not done:
            asked.cancel()
            raise Violation(f"no answer after {limit + 5:g} s")
        expect.status(await asked, 200)


@check("delete-session.ok")
async def delete_session(server: ServerUnderTest) -> None:
    episode = await server.deleted()
    expect.value(await episode.post("/delete_session"), {"sid": episode.sid})


@check("delete-session.unknown")
async def delete_session_unknown(server: ServerUnderTest) -> None:
    expect.value(await server.ask("POST", "/delete_session", sid=UNKNOWN), {"sid": UNKNOWN})


@in_session("delete-session.deletes-nothing")
async def delete_session_deletes_nothing(episode: CheckedSession) -> None:
    await episode.post("/delete_session")
    expect.status(await episode.post("/ping"), 200)
    expect.status(await episode.get("prompt"), 200)


ABSENT = (
    answers("ping.unknown", 404, "POST", "/ping", session="unknown"),
    answers("ping.gone", 410, "POST", "/ping", session="deleted"),
    answers("delete.unknown", 404, "POST", "/delete", session="unknown"),
    answers("gone.prompt", 410, "GET", "/{0.environment}/prompt", session="deleted"),
    answers("gone.task-tools", 410, "GET", "/{0.environment}/task_tools", session="deleted"),
    answers("gone.call", 410, "POST", "/{0.environment}/call", CALL, session="deleted"),
    answers("unknown.prompt", 404, "GET", "/{0.environment}/prompt", session="unknown"),
    answers("unknown.task-tools", 404, "GET", "/{0.environment}/task_tools", session="unknown"),
    answers("unknown.call", 404, "POST", "/{0.environment}/call", CALL, session="unknown"),
)


@check("gone.create-again")
async def create_again(server: ServerUnderTest) -> None:
    episode = await server.deleted()
    async with server.created(server.task(), sid=episode.sid) as (_, answer):
        expect.status(answer, 200)
        expect.status(await episode.get("prompt"), 200)


@in_session("state.kept", "probe")
async def state_kept(episode: CheckedSession) -> None:
    for count in ("1", "2", "3"):
        expect.text(await episode.call("add"), count)


@check("state.apart", "probe")
async def state_apart(server: ServerUnderTest) -> None:
    async with server.session() as first, server.session() as second:
        await first.call("add")
        expect.text(await second.call("add"), "1")


@check("state.finished-stays", "probe")
async def finished_stays(server: ServerUnderTest) -> None:
    run = uuid.uuid4().hex
    async with server.session(run=run) as episode:
        await episode.call("give", {"reward": 1.0, "finished": True})
        expect.status(await episode.post("/ping"), 200)
        expect.status(await episode.get("prompt"), 200)
        await expect_notes(server, run, ["setup", "ready"])


def _surely(server: ServerUnderTest) -> float:
    return server.times.idle + server.times.slack


@in_session("expiry.idle", "slow")
async def idle(episode: CheckedSession) -> None:
    await episode.get("prompt")
    await asyncio.sleep(_surely(episode.server))
    expect.status(await episode.get("prompt"), 404, 410)


@in_session("expiry.not-before", "slow")
async def not_before(episode: CheckedSession) -> None:
    await episode.get("prompt")
    await asyncio.sleep(episode.server.times.idle * 0.9)
    expect.status(await episode.get("prompt"), 200)


@in_session("expiry.ping", "slow")
async def pinged(episode: CheckedSession) -> None:
    await episode.get("prompt")
    for _ in range(3):
        await asyncio.sleep(_surely(episode.server) * 0.36)
        expect.status(await episode.post("/ping"), 200)


@in_session("expiry.any-request", "slow")
async def any_request(episode: CheckedSession) -> None:
    await episode.get("prompt")
    for _ in range(3):
        await asyncio.sleep(_surely(episode.server) * 0.36)
        await episode.server.ask("GET", f"/{episode.server.environment}/tools", sid=episode.sid)
    expect.status(await episode.get("prompt"), 200)


@check("expiry.running-call", "probe", "slow")
async def call_longer_than_idle(server: ServerUnderTest) -> None:
    seconds = _surely(server) + 1
    async with server.session() as episode:
        stream = await episode.call("slow", {"seconds": seconds}, takes=seconds)
        stream.output()
        expect.status(await episode.post("/ping"), 200)


@check("expiry.gone", "probe", "slow")
async def gone(server: ServerUnderTest) -> None:
    run = uuid.uuid4().hex
    async with server.session(run=run) as episode:
        await episode.get("prompt")
        await asyncio.sleep(_surely(server))
        answer = await episode.get("prompt")
        answer.fault_if(answer.status == 404, "an expired session gets 404 instead of 410")
        expect.status(answer, 410)
        await expect_notes(server, run, ["setup", "ready", "teardown"])
