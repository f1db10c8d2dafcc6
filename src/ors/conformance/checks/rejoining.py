"""Checks of reconnecting to a call by its task id."""

import asyncio
import uuid

from ors.conformance.checks import check
from ors.conformance.events import RawStream
from ors.conformance.faults import Violation
from ors.conformance.subject import CheckedSession, ServerUnderTest


async def _counted(episode: CheckedSession, wanted: str) -> None:
    given = await episode.call("counted")
    if given.text() != wanted:
        raise Violation(f"the tool has run {given.text()} times instead of {wanted}", given.seen)


def _same(first: RawStream, again: RawStream) -> None:
    if first.value() != again.value():
        raise Violation("the result is different", again.seen)


@check("rejoin.finished", probe=True)
async def finished(server: ServerUnderTest) -> None:
    """Reconnects to a completed call."""
    async with server.session() as episode:
        first = await episode.call("add")
        _same(first, await episode.call("add", task_id=first.task_id))
        await _counted(episode, "1")


@check("rejoin.running", probe=True)
async def running(server: ServerUnderTest) -> None:
    """Reconnects to a running call."""
    async with server.session() as episode:
        async with episode.opened("slow", {"seconds": 0.5}) as live:
            task_id = await live.first()
            again = await episode.call("slow", {"seconds": 0.5}, task_id=task_id, takes=1)
            _same(await live.rest(), again)
        await _counted(episode, "1")


@check("rejoin.dropped", probe=True)
async def dropped(server: ServerUnderTest) -> None:
    """Closes the connection while the tool runs."""
    async with server.session() as episode:
        async with episode.opened("slow", {"seconds": 0.4}) as live:
            task_id = await live.first()
        again = await episode.call("slow", {"seconds": 0.4}, task_id=task_id, takes=1)
        if again.text() != "1":
            raise Violation("not the result of the call", again.seen)
        await _counted(episode, "1")


@check("rejoin.task-id-first", probe=True)
async def task_id_first(server: ServerUnderTest) -> None:
    """Expects the same id as before."""
    async with server.session() as episode:
        first = await episode.call("add")
        again = await episode.call("add", task_id=first.task_id)
        if not again.events or again.events[0].name != "task_id" or again.task_id != first.task_id:
            raise Violation("the first event is not task_id with the same id", again.seen)


@check("rejoin.whatever-input", probe=True)
async def whatever_input(server: ServerUnderTest) -> None:
    """Names another tool with another input."""
    async with server.session() as episode:
        first = await episode.call("add")
        _same(first, await episode.call("echo", {"text": "x"}, task_id=first.task_id))


@check("rejoin.error", probe=True)
async def error(server: ServerUnderTest) -> None:
    """Reconnects to a call that raised."""
    async with server.session() as episode:
        first = await episode.call("fail", {"text": "broken today"})
        again = await episode.call("fail", {"text": "broken today"}, task_id=first.task_id)
        if first.error() != again.error():
            raise Violation("the error event is different", again.seen)


@check("rejoin.unknown")
async def unknown(server: ServerUnderTest) -> None:
    """Sends an id that the server never gave out."""
    async with server.session() as episode:
        given = await episode.call("echo", {"text": "x"}, task_id=uuid.uuid4().hex)
        if given.error() != "unknown task_id":
            raise Violation("the error is not 'unknown task_id'", given.seen)


@check("rejoin.unknown-echo")
async def unknown_echo(server: ServerUnderTest) -> None:
    """Expects the id in the first event."""
    async with server.session() as episode:
        task_id = uuid.uuid4().hex
        given = await episode.call("echo", {"text": "x"}, task_id=task_id)
        if given.task_id != task_id or given.events[0].name != "task_id":
            raise Violation("the stream does not begin with the same task_id", given.seen)


@check("rejoin.unknown-runs-nothing", probe=True)
async def unknown_runs_nothing(server: ServerUnderTest) -> None:
    """The tool counts its runs."""
    async with server.session() as episode:
        await episode.call("add", task_id=uuid.uuid4().hex)
        await _counted(episode, "0")


@check("rejoin.other-session", probe=True)
async def other_session(server: ServerUnderTest) -> None:
    """Sends the task id of another session."""
    async with server.session() as first, server.session() as second:
        given = await first.call("echo", {"text": "of the first session"})
        stolen = await second.call("echo", {"text": "x"}, task_id=given.task_id)
        if stolen.error() != "unknown task_id":
            raise Violation("the error is not 'unknown task_id'", stolen.seen)


@check("rejoin.kept", probe=True, slow=True)
async def kept(server: ServerUnderTest) -> None:
    """Reconnects shortly before the result expires."""
    async with server.session() as episode:
        first = await episode.call("add")
        await asyncio.sleep(server.times.kept * 0.9)
        _same(first, await episode.call("add", task_id=first.task_id))


@check("rejoin.expired", probe=True, slow=True)
async def expired(server: ServerUnderTest) -> None:
    """Reconnects well after the result has expired."""
    async with server.session() as episode:
        first = await episode.call("add")
        await asyncio.sleep(server.times.kept + server.times.slack)
        (await episode.call("add", task_id=first.task_id)).error()
        await _counted(episode, "1")
