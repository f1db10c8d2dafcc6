"""The application for any ASGI server."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, Protocol

from ors.errors import Forbidden, ORSError, StartupFailed, Unavailable
from ors.server.connections.context import ArrivingBodies, Responder, seconds_for, too_slow
from ors.server.http.answers import Answer, Headers, failure
from ors.server.http.origin_check import is_loopback
from ors.server.http.requests import (
    MAX_HEADER_BYTES,
    MAX_TARGET_BYTES,
    SINGLE_HEADERS,
    Request,
    doubled,
    too_large,
    too_long,
    too_many_headers,
)
from ors.server.http.streams import Outcome, Sink, Stream

log = logging.getLogger("ors.server")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_UNSENT = 64
"""Messages of an answer that may wait to be sent; then its stream is paused."""
FEED_SECONDS = 60.0
"""Feeds end after this time, and their readers come back: an ASGI server that stops waits for open streams,
and does not tell us."""


class Application(Responder, Protocol):
    """A server's application."""

    @property
    def is_local(self) -> bool:
        """Whether it answers only programs of this machine."""

    async def prepare(self) -> None:
        """Runs what has to run before the first request, unless that has been done.

        Raises:
            StartupFailed: an environment cannot be served.
        """

    def begin(self) -> None:
        """Starts on the running loop."""

    async def stop(self) -> None:
        """Ends all sessions and tasks."""


class ASGI:
    """Turns ASGI messages into requests and answers. Lifespan events are optional."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._arriving = ArrivingBodies()
        self._prepared = False

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            with suppress(asyncio.CancelledError):  # uvicorn would log a stack trace
                await self._run_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close"})  # the server answers 403

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] == "lifespan.startup":
            try:
                await self._app.prepare()
            except StartupFailed as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            self._prepared = True
            self._app.begin()
            await send({"type": "lifespan.startup.complete"})
        await self._app.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        request = Request(
            scope["method"], scope["path"], scope.get("query_string", b""), dict(scope["headers"]), b""
        )
        try:
            self._check_client(scope)
            if not self._prepared:  # the server sends no lifespan events
                await self._prepare()
            _check_size(scope)
            complete = await self._read(request, receive)
        except ORSError as error:
            await _Response(request).run(self._app.refused(error), receive, send)
            return
        if complete:
            outcome = self._app.take(request)
            await _Response(request).run(outcome, receive, send)

    def _check_client(self, scope: Message) -> None:
        if self._app.is_local and not is_loopback(str((scope.get("client") or ("",))[0])):
            raise Forbidden(
                "This server exposes source code and answers only requests from this machine", reason="host"
            )

    async def _prepare(self) -> None:
        try:
            await asyncio.shield(self._app.prepare())  # a client that leaves must not stop it
        except StartupFailed:
            raise Unavailable("The server could not start; its log says why", reason="environment") from None
        self._prepared = True

    async def _read(self, request: Request, receive: Receive) -> bool:
        """Reads the body; returns whether it is complete.

        Raises:
            ORSError: it is too long or too slow, or too many bodies are arriving.
        """
        data, since, limit = bytearray(), asyncio.get_running_loop().time(), None
        more = True
        try:
            while more:
                async with asyncio.timeout_at(since + seconds_for(len(data))):
                    message = await receive()
                if message["type"] != "http.request":
                    return False
                part, more = message.get("body", b""), message.get("more_body", False)
                data += part
                self._arriving.add(len(part))
                if more and limit is None:
                    admitted = self._app.admit(request)
                    limit = admitted if isinstance(admitted, int) else await admitted
                most = self._app.limits.body_bytes if limit is None else limit
                if len(data) > most:
                    raise too_large(most)
        except TimeoutError:
            raise too_slow() from None
        finally:
            self._arriving.bytes -= len(data)
        request.body = bytes(data)
        return True


class _Response(Sink):
    """One answer, as a queue of ASGI messages."""

    def __init__(self, request: Request) -> None:
        self._more = [] if request.more is None else request.more.pairs
        if b"upgrade" in request.headers:  # uvicorn reads the body of such a request as another request
            self._more.append((b"connection", b"close"))
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue()  # None after the last one
        self._over = False
        self._stream: Stream | None = None
        self._started = False
        self._paused = False

    async def run(self, outcome: Outcome, receive: Receive, send: Send) -> None:
        self.answer(outcome)
        watch = None if self._over else asyncio.create_task(self._watch(receive))
        ending = asyncio.get_running_loop().call_later(FEED_SECONDS, self._stop)
        try:
            while (message := await self._messages.get()) is not None:
                await send(message)
                if self._paused and self._messages.empty() and self._stream is not None:
                    self._paused = False
                    self._stream.resume()
        finally:
            ending.cancel()
            if watch is not None:
                watch.cancel()
            self._leave()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._leave()
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
            try:
                outcome.begin(self)
            except Exception as error:  # a bug of ours; the client must not wait for ever
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        log.error("a request was not answered", exc_info=error)
        self._stream = None
        if self._started:
            self.abort()
        else:
            self.answer(failure())

    def whole(self, status: int, headers: Headers, body: bytes) -> bool:
        self._start(status, [*headers.pairs, *self._more, (b"content-length", b"%d" % len(body))])
        return self.end(body)

    def head(self, status: int, headers: Headers, body: bytes = b"") -> None:
        self._start(status, [*headers.pairs, *self._more])
        if body:
            self.part(body)

    def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._started = True
        self._put({"type": "http.response.start", "status": status, "headers": headers})

    def part(self, data: bytes) -> None:
        self._put({"type": "http.response.body", "body": data, "more_body": True})
        if self._messages.qsize() >= MAX_UNSENT and self._stream is not None and not self._paused:
            self._paused = True
            self._stream.pause()

    def end(self, data: bytes) -> bool:
        self._stream = None
        self._put({"type": "http.response.body", "body": data})
        self.abort()
        return True

    def abort(self) -> None:
        self._over = True
        self._put(None)

    def _put(self, message: Message | None) -> None:
        self._messages.put_nowait(message)


def _check_size(scope: Message) -> None:
    # Other HTTP servers have other limits than our own connections.
    path = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
    query = scope.get("query_string", b"")
    if len(path) + len(query) + bool(query) > MAX_TARGET_BYTES:
        raise too_long()
    headers = scope["headers"]
    if sum(len(name) + len(value) + 4 for name, value in headers) > MAX_HEADER_BYTES:
        raise too_many_headers()
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen and name in SINGLE_HEADERS:
            raise doubled(name)
        seen.add(name)
