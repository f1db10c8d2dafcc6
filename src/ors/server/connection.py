"""One HTTP/1.1 connection, read by httptools, answered without ASGI's messages in between.

This is the hot path: a request is parsed, taken by the application and answered in one write, without a
task of its own (a call's tool runs in one task, which writes its result). Against ASGI it saves half of a
call's cost. It stands in for uvicorn's own HTTP protocol, and keeps to what uvicorn expects of one.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from ors.errors import BadRequest, NotFound, ORSError
from ors.server.answers import STREAM, Answer, Headers, refusal
from ors.server.port import (
    KEEP_ALIVE_SECONDS,
    LAST_READ_SECONDS,
    ONE_WRITE_BYTES,
    REQUEST_SECONDS,
    STATUS,
    Port,
)
from ors.server.reader import Reader
from ors.server.requests import Request
from ors.server.streams import Outcome, Stream


class Connection(Reader):
    """A client's connection: requests one after the other, each answered before the next is begun."""

    def __init__(
        self,
        port: Port,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(port.app.limits, port.upgrades, _loop or asyncio.get_running_loop())
        self._port = port
        self._app = port.app
        self._state = server_state
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[Callable[[], None]] = deque()  # answers to pipelined requests
        self._busy = False  # a request is being answered
        self._keep_alive = True
        self._chunked = True  # an HTTP/1.0 client gets its stream until the connection ends
        self._bodyless = False  # the answer to a HEAD
        self._more = b""  # headers that this answer has besides
        self.stream: Stream | None = None
        """What gives the answer, if it takes time."""
        self.tag: object = None
        """What the port's `after_answer` remembers of this connection."""
        self._paused = False  # the client reads slower than we write

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
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.leave()

    def pause_writing(self) -> None:
        """The client reads slower than we write."""
        self._paused = True
        if self.stream is not None:
            self.stream.pause()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._paused = False
        if self.stream is not None:
            self.stream.resume()

    # ── What the reader tells ────────────────────────────────────────────────────────────────────

    def _received(self, request: Request, modern: bool, keep_alive: bool) -> None:
        if self._busy:
            self._waiting.append(partial(self._take_next, request, modern, keep_alive))
            if self._transport is not None:
                self._transport.pause_reading()
            return
        self._busy = True
        self._chunked = modern
        self._keep_alive = keep_alive and not self._port.leaving
        self._bodyless = request.method == "HEAD"
        outcome = self._app.take(request)
        self._more = b"" if request.more is None else request.more.wire
        self.answer(outcome)

    def _take_next(self, request: Request, modern: bool, keep_alive: bool) -> None:
        self._busy = False
        self._received(request, modern, keep_alive)

    def _go_on(self) -> None:
        if not self._busy:
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # ── Answering ────────────────────────────────────────────────────────────────────────────────

    def answer(self, outcome: Outcome) -> None:
        """Answers the request with an outcome."""
        if isinstance(outcome, Answer):
            self.stream = None
            self.whole(outcome.status, outcome.headers, outcome.body)
            return
        self.stream = outcome
        if self._paused:
            outcome.pause()
        outcome.begin(self)

    def whole(self, status: int, headers: Headers, body: bytes, rest: bytes = b"") -> bool:
        """Sends a complete answer; says whether the client was still there."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        size = len(body) + len(rest)
        if headers is STREAM and self._keep_alive and not self._more and not self._bodyless:
            begin = b"%bcontent-length: %d\r\n\r\n%b" % (self._port.stream, size, body)
        elif self._bodyless:
            begin, rest = self._head(status, headers.wire, size), b""
        else:
            begin = self._head(status, headers.wire, size) + body
        if len(rest) <= ONE_WRITE_BYTES:
            transport.write(begin + rest)
        else:
            transport.writelines((begin, rest))
        self._next()
        return True

    def head(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Begins an answer whose length is not known."""
        self._keep_alive = self._keep_alive and self._chunked and not self._bodyless
        first = self._part(body) if body and not self._bodyless else b""
        self._write(self._head(status, headers.wire, None) + first)

    def part(self, data: bytes) -> None:
        """Sends more of the body."""
        if not self._bodyless:
            self._write(self._part(data))

    def end(self, data: bytes) -> bool:
        """Sends the last of the body; says whether the client was still there."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if not self._bodyless:
            last = b"0\r\n\r\n"
            framed = (b"%x\r\n" % len(data), data, b"\r\n" + last) if data else (last,)
            transport.writelines(framed if self._chunked else (data,))  # not joined: it may be long
        self._next()
        return True

    def abort(self) -> None:
        """Breaks the answer off: the client sees a connection that breaks."""
        if self._transport is not None:
            self._transport.abort()

    def _part(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data

    def _head(self, status: int, headers: bytes, length: int | None) -> bytes:
        if length is not None:
            framing = b"content-length: %d\r\n" % length
        else:
            framing = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        close = b"" if self._keep_alive else b"connection: close\r\n"
        return b"".join(
            (STATUS.get(status, STATUS[500]), self._port.date, headers, self._more, framing, close, b"\r\n")
        )

    def _refuse(self, error: ORSError) -> None:
        """Answers what cannot be read on from, behind all that came before it, and closes."""
        if self._parser is None or self._transport is None or self._transport.is_closing():
            return
        self._parser = None
        answer = partial(self._answer_last, self._app.refused(error))
        self._waiting.append(answer) if self._busy else answer()

    def _answer_last(self, answer: Answer) -> None:
        self._busy = self._keep_alive = False
        self._more = b""
        self._write(self._head(answer.status, answer.headers.wire, len(answer.body)) + answer.body)
        self._since = self._loop.time()
        transport = self._transport
        if transport is not None and transport.can_write_eof() and not transport.is_closing():
            transport.write_eof()  # it closes when the client does, or is swept

    def _upgraded(self, rest: bytes) -> None:
        if self._busy:  # nothing else is spoken before the answer to an earlier request
            self._refuse(BadRequest("A change of protocol begins with its own request"))
            return
        self._reading = False
        method, path = self._parser.get_method().decode(), self._url.decode("ascii", "replace")
        request = Request(method, path, b"", self._headers, b"")
        upgrade = self._port.upgrades[self._headers[b"upgrade"]]
        refused = self._app.admit(request)
        if refused is None and (method, path) != ("GET", upgrade.path):
            refused = refusal(NotFound("There is nothing at this path"))
        if refused is not None:
            self._busy, self._keep_alive = True, False
            self.answer(refused)
        elif self._transport is not None:
            self._state.connections.discard(self)
            transport, self._transport = self._transport, None
            upgrade.take_over(transport, self._state, rest)

    # ── Between requests ─────────────────────────────────────────────────────────────────────────

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _next(self) -> None:
        self._busy = False
        if self._port.after_answer is not None:
            self._port.after_answer(self)
        self.stream = None
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

    def let_go(self) -> None:
        """Closes it here alone: another process has it, and the client's end stays open."""
        self.abort()

    @property
    def spare(self) -> int | None:
        """The file descriptor, if it is a client's, nothing is under way, and another process could go on."""
        transport = None if self._parser is None else self._transport  # what is refused is read by nobody
        if self._busy or self._reading or transport is None or transport.is_closing():
            return None
        if transport.get_write_buffer_size() or transport.get_extra_info("ssl_object") is not None:
            return None
        end = transport.get_extra_info("socket")  # by a unix socket comes a link, which is for this server
        return None if end.family == socket.AF_UNIX else int(end.fileno())

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
        elif not self._busy and quiet > self._patience:
            self._transport.close()

    @property
    def _patience(self) -> float:
        if self._parser is None:
            return LAST_READ_SECONDS
        return REQUEST_SECONDS if self._reading else KEEP_ALIVE_SECONDS

    def shutdown(self) -> None:
        """uvicorn's word to end: now, or after the answer that is under way."""
        self._keep_alive = False
        if self.stream is not None:
            self.stream.stop()
        elif not self._busy and self._transport is not None:
            self._transport.close()
