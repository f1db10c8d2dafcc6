"""MCP over streamable HTTP, without the HTTP: status, headers, and a body or a stream of events."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ors._protocol import EVENT_STREAM, one_line
from ors._protocol.sse import PING
from ors.mcp import messages
from ors.mcp.answers import Dialogue, Episode, fitted
from ors.mcp.messages import Message, Refused

AT_ONCE_SECONDS = 1.0
"""A call that is done by then is answered as JSON, of any size; otherwise as a stream of events."""
PROGRESS_SECONDS = 5.0
"""How often an open stream gets a sign of life. At this pace, agents wait for calls of minutes."""
EVENT_BYTES = 1_000_000
"""Longest result in an event: the client of mcp 2.3.0 refuses events over 1,048,576 bytes."""

_JSON = {"Content-Type": "application/json"}
_STREAM = {"Content-Type": EVENT_STREAM, "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class Reply(NamedTuple):
    """The answer to one request: a body, or a stream of events."""

    status: int
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes | AsyncIterator[bytes] = b""


class HTTPDialogue:
    """Answers the HTTP requests of MCP clients for one episode. Needs no session: any client may come."""

    def __init__(self, episode: Episode) -> None:
        self._dialogue = Dialogue(episode)
        self._running: set[asyncio.Task[tuple[int, bytes]]] = set()

    async def reply(self, method: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Answers a request; `headers` have names in lower case. A call goes on if its client leaves."""
        if method != "POST":
            return Reply(405, {"Allow": "POST"})
        try:
            message = messages.read(body, headers)
        except Refused as refused:
            return Reply(status_of(refused), _JSON, messages.error(refused))
        if message.id is None:
            return Reply(202)
        task = asyncio.create_task(self._answer(message))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        streams = message.method == "tools/call" and EVENT_STREAM in headers.get("accept", "")
        await asyncio.wait({task}, timeout=AT_ONCE_SECONDS if streams else None)
        if not task.done():
            return Reply(200, _STREAM, self._events(message, task))
        status, answer = task.result()
        return Reply(status, _JSON, answer)

    async def _answer(self, message: Message) -> tuple[int, bytes]:
        try:
            return 200, await self._dialogue.answer(message) or b""
        except Refused as refused:
            return status_of(refused), messages.error(refused)

    async def _events(self, message: Message, task: asyncio.Task[tuple[int, bytes]]) -> AsyncIterator[bytes]:
        count = 0
        while not task.done():
            count += 1
            yield sign_of_life(message, count)
            await asyncio.wait({task}, timeout=PROGRESS_SECONDS)
        yield last_event(task.result()[1])

    async def close(self) -> None:
        """Stops waiting for calls that still run."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)


def status_of(refused: Refused) -> int:
    """The status of an answer with an error. After a handshake, only what is no message has its own."""
    if not refused.stateless and refused.code not in (messages.PARSE_ERROR, messages.INVALID_REQUEST):
        return 200
    return {messages.UNKNOWN_METHOD: 404, messages.INTERNAL: 200}.get(refused.code, 400)


def sign_of_life(message: Message, count: int) -> bytes:
    """The event that tells that a call still runs; a comment if its client did not ask for progress."""
    told = messages.progress(message, count)
    return PING if told is None else _event(told)


def last_event(answer: bytes) -> bytes:
    """The answer to a call as an event, cut if it is too long for one."""
    return _event(fitted(answer, EVENT_BYTES))


def _event(message: bytes) -> bytes:
    return b"event: message\ndata: %b\n\n" % one_line(message)
