"""MCP over streamable HTTP, without the HTTP: status, headers, and a body or a stream of events."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from ors._protocol import EVENT_STREAM, one_line
from ors._protocol.sse import PING
from ors.mcp.answers import Dialogue, Episode, fitted
from ors.mcp.messages import (
    INTERNAL,
    INVALID_REQUEST,
    PARSE_ERROR,
    UNKNOWN_METHOD,
    Message,
    Refused,
    error,
    progress,
    read,
)

AT_ONCE_SECONDS = 1.0
"""A call that is done by then is answered as JSON, of any size; otherwise as a stream of events."""
PROGRESS_SECONDS = 5.0
"""How often an open stream gets a sign of life. At this pace, agents wait for calls of minutes."""
EVENT_BYTES = 1_000_000
"""Longest result in an event: the client of mcp 2.3.0 refuses events over 1,048,576 bytes."""

_JSON = {"Content-Type": "application/json"}
_STREAM = {"Content-Type": EVENT_STREAM, "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one request: a body, or a stream of events."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | AsyncIterator[bytes] = b""


class HTTPDialogue:
    """Answers the HTTP requests of MCP clients for one episode. Needs no session: any client may come."""

    def __init__(self, episode: Episode) -> None:
        self._dialogue = Dialogue(episode)
        self._running: set[asyncio.Task[Reply]] = set()

    async def reply(self, method: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Answers a request; `headers` have names in lower case. A call goes on if its client leaves."""
        if method != "POST":
            return Reply(405, {"Allow": "POST"})
        try:
            message = read(body, headers)
        except Refused as refused:
            return refusal(refused)
        if message.id is None:
            return Reply(202)
        task = asyncio.create_task(self._answer(message))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        streams = message.method == "tools/call" and EVENT_STREAM in headers.get("accept", "")
        await asyncio.wait({task}, timeout=AT_ONCE_SECONDS if streams else None)
        return task.result() if task.done() else Reply(200, _STREAM, self._events(message, task))

    async def _answer(self, message: Message) -> Reply:
        try:
            return Reply(200, _JSON, await self._dialogue.answer(message) or b"")
        except Refused as refused:
            return refusal(refused)

    async def _events(self, message: Message, task: asyncio.Task[Reply]) -> AsyncIterator[bytes]:
        count = 0
        while not task.done():
            count += 1
            yield sign_of_life(message, count)
            await asyncio.wait({task}, timeout=PROGRESS_SECONDS)
        answer = task.result().body
        assert isinstance(answer, bytes)
        yield last_event(answer)

    async def close(self) -> None:
        """Stops waiting for calls that still run."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)


def refusal(refused: Refused) -> Reply:
    """The answer to a request whose message was refused. The handshake has its errors under 200."""
    status = 404 if refused.code == UNKNOWN_METHOD else 200 if refused.code == INTERNAL else 400
    told = refused.stateless or refused.code in (PARSE_ERROR, INVALID_REQUEST)
    return Reply(status if told else 200, _JSON, error(refused))


def sign_of_life(message: Message, count: int) -> bytes:
    """The event that tells that a call still runs; a comment if its client did not ask for progress."""
    told = progress(message, count)
    return PING if told is None else _event(told)


def last_event(answer: bytes) -> bytes:
    """The answer to a call as an event, cut if it is too long for one."""
    return _event(fitted(answer, EVENT_BYTES))


def _event(message: bytes) -> bytes:
    return b"event: message\ndata: %b\n\n" % one_line(message)
