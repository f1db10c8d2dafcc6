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
from ors.server.intake import Intake, seconds_for, too_slow
from ors.server.port import Front
from ors.server.pulse import Pulse
from ors.server.relay import Relay, Switch
from ors.server.requests import (
    MAX_HEADER_BYTES,
    MAX_TARGET_BYTES,
    Request,
    too_large,
    too_long,
    too_many_headers,
    two_hosts,
)

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
        self._intake = Intake(app.limits.arriving_bytes)

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
        request = Request(
            scope["method"], scope["path"], scope.get("query_string", b""), dict(scope["headers"]), b""
        )
        try:
            _check_size(scope)
            there = await self._read(request, receive)
        except ORSError as error:
            await _send(send, self._app.refused(error), _pairs(request))
            return
        if not there:  # the client left before it was through
            return
        outcome = self._app.take(request)
        more = _pairs(request)
        if isinstance(outcome, Relay | Switch):  # neighbours and links need our own connections
            outcome = refusal(NotFound("There is nothing at this path"))
        if isinstance(outcome, Call):
            await self._stream(send, outcome, more)
        elif isinstance(outcome, Feed):
            await _feed(receive, send, outcome, more)
        else:
            whole = outcome if isinstance(outcome, Answer) else await self._app.finish(request, outcome)
            await _send(send, whole, more)

    async def _read(self, request: Request, receive: Receive) -> bool:
        """Reads the body; says whether all of it has come."""
        message = await receive()
        if message["type"] != "http.request":
            return False
        request.body = message.get("body", b"")
        if message.get("more_body"):  # it is not kept for anybody
            most = self._app.admit(request)
            most = most if isinstance(most, int) else await most
            arriving = _Arriving(self._intake, request.body)
            try:
                return await arriving.read(request, receive, most)
            finally:
                self._intake.remove(len(arriving.body))
        if len(request.body) > self._app.limits.body_bytes:
            raise too_large(self._app.limits.body_bytes)
        return True

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


class _Arriving:
    """A body that comes in parts."""

    def __init__(self, intake: Intake, body: bytes) -> None:
        self.body = bytearray(body)
        self._intake = intake
        self._begun = asyncio.get_running_loop().time()
        intake.bytes += len(body)

    async def read(self, request: Request, receive: Receive, most: int) -> bool:
        """Reads the rest of it; says whether all has come.

        Raises:
            ORSError: it is too long, or too slow, or one too many.
        """
        message: Message = {"more_body": True}
        while message.get("more_body"):
            self._intake.add(0)
            if len(self.body) > most:
                raise too_large(most)
            try:
                async with asyncio.timeout_at(self._begun + seconds_for(len(self.body))):
                    message = await receive()
            except TimeoutError:
                raise too_slow() from None
            if message["type"] != "http.request":
                return False
            self._intake.bytes += len(message.get("body", b""))
            self.body += message.get("body", b"")
        if len(self.body) > most:
            raise too_large(most)
        request.body = bytes(self.body)
        return True


def _check_size(scope: Message) -> None:
    # Other servers have other limits than our own connections.
    path = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
    query = scope.get("query_string", b"")
    if len(path) + len(query) + bool(query) > MAX_TARGET_BYTES:
        raise too_long()
    headers = scope["headers"]
    if sum(len(name) + len(value) + 4 for name, value in headers) > MAX_HEADER_BYTES:
        raise too_many_headers()
    if sum(name == b"host" for name, _ in headers) > 1:
        raise two_hosts()


def _pairs(request: Request) -> Pairs:
    return () if request.more is None else request.more.pairs


async def _send(send: Send, answer: Answer, more: Pairs = ()) -> None:
    headers = [*answer.headers.pairs, *more, (b"content-length", b"%d" % len(answer.body))]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
