"""Our application for any ASGI server."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from ors.errors import ORSError
from ors.server.answers import Answer, Headers
from ors.server.port import Front
from ors.server.requests import Request, too_large
from ors.server.streams import Outcome, Stream

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MOST_UNSENT = 64
"""Parts of an answer that may wait to be sent; then its stream is paused."""
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
            await _Response(None).run(self._app.refused(error), receive, send)
            return
        if body is None:  # the client left before it was through
            return
        query = scope.get("query_string", b"")
        request = Request(scope["method"], scope["path"], query, dict(scope["headers"]), body)
        outcome = self._app.take(request)
        await _Response(request.more).run(outcome, receive, send)


class _Response:
    """One answer, as messages that are sent in their order."""

    def __init__(self, more: Headers | None) -> None:
        self._more = [] if more is None else more.pairs
        self._messages: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._over = False  # no further message will come
        self._stream: Stream | None = None
        self._paused = False

    async def run(self, outcome: Outcome, receive: Receive, send: Send) -> None:
        """Answers with `outcome`, until it is complete or the client has left."""
        self.answer(outcome)
        watching = None if self._over else asyncio.create_task(self._watch(receive))
        ending = asyncio.get_running_loop().call_later(FEED_SECONDS, self._stop)
        try:
            while not self._over or self._messages:
                if not self._messages:
                    self._arrived.clear()
                    await self._arrived.wait()
                    continue
                await send(self._messages.popleft())
                if self._paused and not self._messages and self._stream is not None:
                    self._paused = False
                    self._stream.resume()
        finally:
            ending.cancel()
            if watching is not None:
                watching.cancel()
            self._leave()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._leave()
        self._messages.clear()
        self.abort()

    def _leave(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.leave()

    def _stop(self) -> None:
        if self._stream is not None:
            self._stream.stop()

    # ── As a sink ────────────────────────────────────────────────────────────────────────────────

    def answer(self, outcome: Outcome) -> None:
        self._stream = None
        if isinstance(outcome, Answer):
            self.whole(outcome.status, outcome.headers, outcome.body)
        else:
            self._stream = outcome
            outcome.begin(self)

    def whole(self, status: int, headers: Headers, body: bytes, rest: bytes = b"") -> bool:
        length = (b"content-length", b"%d" % (len(body) + len(rest)))
        self._start(status, [*headers.pairs, *self._more, length])
        return self.end(body + rest)

    def head(self, status: int, headers: Headers, body: bytes = b"") -> None:
        self._start(status, [*headers.pairs, *self._more])
        if body:
            self.part(body)

    def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._put({"type": "http.response.start", "status": status, "headers": headers})

    def part(self, data: bytes) -> None:
        self._put({"type": "http.response.body", "body": data, "more_body": True})
        if len(self._messages) >= MOST_UNSENT and self._stream is not None and not self._paused:
            self._paused = True
            self._stream.pause()

    def end(self, data: bytes) -> bool:
        self._stream = None
        self._over = True
        self._put({"type": "http.response.body", "body": data})
        return True

    def abort(self) -> None:
        self._over = True
        self._arrived.set()

    def _put(self, message: Message) -> None:
        self._messages.append(message)
        self._arrived.set()


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
