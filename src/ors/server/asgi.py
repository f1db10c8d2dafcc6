"""Our application for any ASGI server."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from ors._sse import PING
from ors.errors import NotFound, ORSError
from ors.server.answers import STREAM, Answer, refusal
from ors.server.calls import Call
from ors.server.feeds import Feed
from ors.server.port import Front
from ors.server.pulse import Pulse
from ors.server.relay import Relay, Switch
from ors.server.requests import Request, too_large

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Pairs = tuple[tuple[bytes, bytes], ...]

FEED_PARTS = 64
FEED_SECONDS = 60.0
"""A foreign server waits for its open streams when it is told to stop, and cannot tell us: so they end, and
whoever still watches comes again."""


class ASGI:
    """Turns ASGI messages into requests and answers. Lifespan events are used, and not needed."""

    def __init__(self, app: Front) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serves one request, or the life of the server."""
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            with suppress(asyncio.CancelledError):  # told to end at once: uvicorn would log a stack trace
                await self._live(receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] == "lifespan.startup":
            self._app.start()
            await send({"type": "lifespan.startup.complete"})
        await self._app.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            body = await _body(receive, self._app.limits.body_bytes)
        except ORSError as error:
            await _send(send, self._app.refused(error))
            return
        if body is None:  # the client left before it was through
            return
        query = scope.get("query_string", b"")
        request = Request(scope["method"], scope["path"], query, dict(scope["headers"]), body)
        outcome = self._app.take(request)
        more = () if request.more is None else request.more.pairs
        if isinstance(outcome, Relay | Switch):  # neighbours and links need our own connections
            outcome = refusal(NotFound("There is nothing at this path"))
        if isinstance(outcome, Call):
            await self._stream(send, outcome, more)
        elif isinstance(outcome, Feed):
            await _feed(receive, send, outcome, more)
        else:
            whole = outcome if isinstance(outcome, Answer) else await self._app.finish(request, outcome)
            await _send(send, whole, more)

    async def _stream(self, send: Send, call: Call, more: Pairs) -> None:
        if not await _done(call, self._app.opening):
            headers = [*STREAM.pairs, *more]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": call.head, "more_body": True})
            while not await _done(call, self._app.pings):
                await send({"type": "http.response.body", "body": PING, "more_body": True})
            await send({"type": "http.response.body", "body": call.tail})
        else:
            await _send(send, Answer(200, call.head + (call.tail or b""), STREAM), more)
        call.taken()


class _Waiting:
    """Waits for a call or a beat, whichever comes first."""

    def __init__(self) -> None:
        self.first: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def done(self) -> None:
        if not self.first.done():
            self.first.set_result(True)

    def beat(self) -> None:
        if not self.first.done():
            self.first.set_result(False)


async def _done(call: Call, pulse: Pulse) -> bool:
    """Waits until the call is done or the pulse beats; says whether it is done."""
    if call.tail is not None:
        return True
    waiting = _Waiting()
    call.listen(waiting.done)
    pulse.add(waiting, waiting.first.get_loop())
    try:
        return await waiting.first
    finally:
        pulse.remove(waiting)
        call.unlisten(waiting.done)


async def _feed(receive: Receive, send: Send, feed: Feed, more: Pairs) -> None:
    parts: asyncio.Queue[bytes] = asyncio.Queue(FEED_PARTS)

    def offer(part: bytes) -> bool:
        if parts.full():
            return False
        parts.put_nowait(part)
        return True

    await send({"type": "http.response.start", "status": 200, "headers": [*STREAM.pairs, *more]})
    feed.open(offer)
    writing = asyncio.create_task(_write(parts, send))
    try:
        async with asyncio.timeout(FEED_SECONDS):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        writing.cancel()
        await asyncio.wait({writing})
        await send({"type": "http.response.body", "body": b""})
    finally:
        feed.close()
        writing.cancel()


async def _write(parts: asyncio.Queue[bytes], send: Send) -> None:
    while True:
        await send({"type": "http.response.body", "body": await parts.get(), "more_body": True})


async def _body(receive: Receive, limit: int) -> bytes | None:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > limit:
            raise too_large(limit)
        if not message.get("more_body"):
            return bytes(body)


async def _send(send: Send, answer: Answer, more: Pairs = ()) -> None:
    headers = [*answer.headers.pairs, *more, (b"content-length", b"%d" % len(answer.body))]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
