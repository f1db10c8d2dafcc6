"""One HTTP/1.1 connection, read by httptools, answered without ASGI's messages in between.

This is the hot path: a request is parsed, taken by the application and answered in one write, without a
task of its own (a call's tool runs in one task, which writes its result). Against ASGI it saves half of a
call's cost. It stands in for uvicorn's own HTTP protocol, and keeps to what uvicorn expects of one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.config import Config
from uvicorn.server import ServerState

from ors._sse import PING
from ors.errors import BadRequest, ORSError, ResponseError
from ors.server.answers import STREAM, Answer, refusal
from ors.server.app import App, Later
from ors.server.calls import Call
from ors.server.feeds import Feed
from ors.server.requests import Request, too_large

MAX_HEADER_BYTES = 64 * 1024
KEEP_ALIVE_SECONDS = 75.0
"""Longer than any client of ours keeps one, so that none is closed as a request arrives."""
REQUEST_SECONDS = 30.0
"""A request that has begun, or a reader that has stopped, may make no progress for this long."""
MOST_WISHES = 8
"""Requests behind each other that ask for another protocol; clients do so with one."""
ONE_WRITE_BYTES = 64 * 1024
"""Up to here joining is cheaper than writing twice."""

_STATUS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class Port:
    """What the connections to one server share."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.date = b""

    def tick(self, now: float) -> None:
        """Sets the date that answers carry, once a second: writing it costs as much as routing does."""
        self.date = b"date: " + formatdate(now, usegmt=True).encode() + b"\r\n"


class Connection(asyncio.Protocol):
    """A client's connection: requests one after the other, each answered before the next is begun."""

    def __init__(
        self,
        port: Port,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._port = port
        self._app = port.app
        self._loop = _loop or asyncio.get_running_loop()
        self._state = server_state
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[Callable[[], None]] = deque()  # answers to pipelined requests
        self._busy = False  # a request is being answered
        self._reading = False  # a request has begun to arrive
        self._heading = False  # ... and its headers are not through
        self._wishes = 0  # for another protocol, in what is being read
        self._keep_alive = True
        self._chunked = True  # an HTTP/1.0 client gets its stream until the connection ends
        self._bodyless = False  # the answer to a HEAD
        self._more = b""  # headers that this answer has besides
        self._later: tuple[Request, asyncio.Task[None]] | None = None  # what will give the answer
        self._call: Call | None = None  # whose stream is the answer
        self._opened = False  # whether that stream has begun
        self._feed: Feed | None = None  # whose stream is the answer, until the client leaves
        self._paused = False  # the client reads slower than we write
        self._unread = 0  # bytes that it has not taken, when we looked last
        self._since = self._loop.time()  # when there was progress last
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._header_bytes = 0  # received since the request began, or since its body went on
        self._moved = False  # whether one of these happened with what is being read
        self._body: list[bytes] = []
        self._body_bytes = 0

    # ── What the event loop tells ────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = transport  # type: ignore[assignment]
        self._state.connections.add(self)  # type: ignore[arg-type]

    def connection_lost(self, error: Exception | None) -> None:
        """The client has gone. Its calls go on: it may come back for them."""
        self._state.connections.discard(self)
        self._transport = None
        self._parser = None
        self._waiting.clear()
        self._leave_call()
        self._leave_feed()
        if self._later is not None and self._later[0].waiting:
            self._later[1].cancel()  # nobody is there any more to take the place that it waits for

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        if self._parser is None:  # nothing can be read behind what was refused
            return
        if not self._heading and not self._unread:  # headers have one deadline, however slowly they drip
            self._since = self._loop.time()
        self._moved = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._pass_over_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            # One of our callbacks refused what it was told.
            cause = error.__context__
            self._refuse(cause if isinstance(cause, ORSError) else BadRequest("Invalid HTTP request"))
        except httptools.HttpParserError:
            self._refuse(BadRequest("Invalid HTTP request"))
        if self._reading and not self._moved:
            # The parser gathers a header, or a trailer, until it is whole; we would not hear of it.
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADER_BYTES:
                text = f"The request's headers are over {MAX_HEADER_BYTES} bytes"
                self._refuse(ResponseError(text, status=431))

    def _pass_over_upgrade(self, rest: bytes) -> None:
        # A server need not follow to HTTP/2 (RFC 9110, 7.8), but the parser reads no body after such a wish.
        method, version = self._parser.get_method(), self._parser.get_http_version().encode()
        if method == b"CONNECT" or self._wishes == MOST_WISHES:
            self._refuse(BadRequest("This server speaks HTTP/1.1, and is no proxy"))
            return
        lines = [b"%b %b HTTP/%b" % (method, self._url, version)]
        lines += [b"%b: %b" % header for header in self._headers if header[0] != b"upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        self._wishes += 1
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)
        self._wishes -= 1

    def pause_writing(self) -> None:
        """The client reads slower than we write."""
        self._paused = True

    def resume_writing(self) -> None:
        """It has caught up."""
        self._paused = False

    # ── What the parser tells ────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        """A request begins."""
        self._reading = self._heading = True
        self._url = b""
        self._headers = []
        self._body = []
        self._header_bytes = self._body_bytes = 0
        self._moved = True

    def on_url(self, url: bytes) -> None:
        """A part of the request's target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        if self._heading:  # not a trailer: nothing of ours may stand there (RFC 9110, 6.5.1)
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """All headers are there."""
        self._heading = False
        limit = self._app.limits.body_bytes
        for name, value in self._headers:
            if name == b"content-length" and int(value) > limit:
                raise too_large(limit)
            if name == b"expect" and value.lower() == b"100-continue" and not self._busy:
                self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._body.append(body)
        self._moved = True
        self._header_bytes = 0
        self._body_bytes += len(body)
        if self._body_bytes > self._app.limits.body_bytes:
            raise too_large(self._app.limits.body_bytes)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._parser.should_upgrade():  # it is read again, without that wish
            return
        self._reading = False
        body = self._body
        path, _, query = self._url.partition(b"?")
        text = path.decode("ascii", "replace")
        if not text.startswith("/"):  # "http://host/path", as clients ask a proxy
            text = "/" + text.partition("://")[2].partition("/")[2]
        if "%" in text:
            text = unquote(text)
        request = Request(
            self._parser.get_method().decode("ascii"),
            text,
            query,
            dict(self._headers),
            body[0] if len(body) == 1 else b"".join(body),
        )
        modern = self._parser.get_http_version() != "1.0"
        keep_alive = modern and self._parser.should_keep_alive()
        if self._busy:
            self._waiting.append(partial(self._take, request, modern, keep_alive))
            if self._transport is not None:
                self._transport.pause_reading()
        else:
            self._take(request, modern, keep_alive)

    # ── Answering ────────────────────────────────────────────────────────────────────────────────

    def _take(self, request: Request, modern: bool, keep_alive: bool) -> None:
        self._busy = True
        self._chunked = modern
        self._keep_alive = keep_alive
        self._bodyless = request.method == "HEAD"
        outcome = self._app.take(request)
        self._more = b"" if request.more is None else request.more.wire
        if type(outcome) is Call:
            self._follow(outcome)
        elif type(outcome) is Answer:
            self._answer(outcome)
        elif type(outcome) is Feed:
            self._stream(outcome)
        else:
            task = self._loop.create_task(self._answer_later(request, outcome))  # type: ignore[arg-type]
            self._later = (request, task)
            self._state.tasks.add(task)
            task.add_done_callback(self._state.tasks.discard)

    async def _answer_later(self, request: Request, later: Later) -> None:
        try:
            self._answer(await self._app.finish(request, later))
        finally:
            if self._busy and self._later is not None and self._later[0] is request and self._transport:
                self._transport.close()  # cancelled from within: no answer will come

    def _answer(self, answer: Answer) -> None:
        head = self._head(answer.status, answer.headers.wire, len(answer.body))
        self._write(head if self._bodyless else head + answer.body)
        self._next()

    def _head(self, status: int, headers: bytes, length: int | None) -> bytes:
        if length is not None:
            framing = b"content-length: %d\r\n" % length
        else:
            framing = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        close = b"" if self._keep_alive else b"connection: close\r\n"
        return b"".join(
            (_STATUS.get(status, _STATUS[500]), self._port.date, headers, self._more, framing, close, b"\r\n")
        )

    def _refuse(self, error: ORSError) -> None:
        """Answers what cannot be read on from, behind all that came before it, and closes."""
        if self._parser is None or self._transport is None or self._transport.is_closing():
            return
        self._parser = None
        answer = partial(self._answer_last, refusal(error))
        self._waiting.append(answer) if self._busy else answer()

    def _answer_last(self, answer: Answer) -> None:
        self._keep_alive = self._bodyless = False
        self._more = b""
        self._answer(answer)

    # ── A call's stream ──────────────────────────────────────────────────────────────────────────

    def _follow(self, call: Call) -> None:
        self._call = call
        self._opened = False
        if call.tail is not None:
            self._call_done()
        else:
            call.listen(self._call_done)
            self._app.opening.add(self)

    def beat(self) -> None:
        """The call takes its time: the stream opens, or is kept alive."""
        if self._call is None:
            return
        if not self._opened:
            self._opened = True
            self._keep_alive = self._keep_alive and self._chunked
            self._write(self._head(200, STREAM.wire, None) + self._part(self._call.head))
        elif not self._paused:
            self._write(self._part(PING))
        self._app.pings.add(self)

    def _call_done(self) -> None:
        call, self._call = self._call, None
        if call is None or call.tail is None or self._transport is None or self._transport.is_closing():
            return
        if self._opened:
            self._app.pings.remove(self)
            framed = (b"%x\r\n" % len(call.tail), call.tail, b"\r\n0\r\n\r\n")  # not joined: it may be long
            self._transport.writelines(framed if self._chunked else (call.tail,))
        else:
            self._app.opening.remove(self)
            head = call.head
            head = self._head(200, STREAM.wire, len(head) + len(call.tail)) + head
            if len(call.tail) <= ONE_WRITE_BYTES:
                self._transport.write(head + call.tail)
            else:
                self._transport.writelines((head, call.tail))
        call.delivered = True
        self._next()

    def _part(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data

    def _leave_call(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.unlisten(self._call_done)
            self._app.opening.remove(self)
            self._app.pings.remove(self)

    # ── A feed's stream ──────────────────────────────────────────────────────────────────────────

    def _stream(self, feed: Feed) -> None:
        self._keep_alive = False
        self._write(self._head(200, STREAM.wire, None))
        if self._bodyless:
            self._next()
            return
        self._feed = feed
        feed.open(self._feed_part)

    def _feed_part(self, data: bytes) -> bool:
        if self._paused:
            return False
        self._write(self._part(data))
        return True

    def _leave_feed(self) -> bool:
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()
        return feed is not None

    # ── Between requests ─────────────────────────────────────────────────────────────────────────

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _next(self) -> None:
        self._busy = False
        self._later = None
        self._state.total_requests += 1
        if self._transport is None:
            return
        if not self._keep_alive:
            self._transport.close()
        elif self._waiting and not self._transport.is_closing():
            # Not from here, or a thousand pipelined requests would be a thousand frames deep.
            self._busy = True
            self._loop.call_soon(self._waiting.popleft())
            if not self._waiting:
                self._transport.resume_reading()
        else:
            self._since = self._loop.time()

    def sweep(self, now: float) -> None:
        """Closes the connection if nothing has happened on it for too long."""
        if self._transport is None:
            return
        unread = self._transport.get_write_buffer_size()
        if unread != self._unread:  # what was written is being read, however slowly
            self._unread, self._since = unread, now
        quiet = now - self._since
        if unread and quiet > REQUEST_SECONDS:
            self._transport.abort()
        elif not self._busy and quiet > (REQUEST_SECONDS if self._reading else KEEP_ALIVE_SECONDS):
            self._transport.close()

    def shutdown(self) -> None:
        """uvicorn's word to end: now, or after the answer that is under way."""
        self._keep_alive = False
        if self._leave_feed():
            self._write(b"0\r\n\r\n" if self._chunked else b"")
            self._next()
        elif not self._busy and self._transport is not None:
            self._transport.close()
