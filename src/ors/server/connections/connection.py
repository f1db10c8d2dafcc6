"""One HTTP/1.1 connection, parsed by httptools and answered without ASGI messages.

This is the hot path: a request is parsed, taken by the application and answered in one write, without a
task of its own (a call's tool runs in one task, which writes its result). This halves the cost of a call,
compared to ASGI.
"""

import asyncio
import logging

from ors.errors import BadRequest, ORSError
from ors.server.connections.context import ONE_WRITE_BYTES, STATUS, ConnectionContext, Open, Upgrade
from ors.server.connections.parser import RequestParser
from ors.server.http.answers import STREAM, Answer, Headers, failure
from ors.server.http.requests import Request
from ors.server.http.streams import Outcome, Stream

log = logging.getLogger("ors.server")


class Connection(RequestParser):
    """A client's connection: answers requests one after the other."""

    __slots__ = ("_bodyless", "_chunked", "_headed", "_keep_alive", "_more", "_open", "stream")

    def __init__(
        self, context: ConnectionContext, open_: Open, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        super().__init__(context, loop or asyncio.get_running_loop())
        self._open = open_  # all connections of the server
        self._keep_alive = True
        self._chunked = True  # for HTTP/1.0, the end of the connection ends a stream
        self._bodyless = False  # the answer to a HEAD
        self._more = b""  # additional headers of this answer
        self.stream: Stream | None = None
        """Writes the answer, if it takes time."""
        self._headed = False  # an answer of unknown length has begun

    # ── Called by the event loop ────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins, with a new client."""
        self._transport = transport  # type: ignore[assignment]
        self._open.add(self)
        self._context.connected()

    def connection_lost(self, error: Exception | None) -> None:
        """Ends, without the client. Its calls go on: it may come back for them."""
        self._open.discard(self)
        self._transport = None
        self._stop_reading()
        self._drop_waiting()
        self._context.disconnected()
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.leave()

    def pause_writing(self) -> None:
        """Stops writing and reading: the client reads slower than we write."""
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()
        if self.stream is not None:
            self.stream.pause()

    def resume_writing(self) -> None:
        """Continues: the client has caught up."""
        self._paused = False
        if self.stream is not None:
            self.stream.resume()
        self._take_waiting()
        self._resume_reading()

    # ── Called by the parser ────────────────────────────────────────────────────────────────────

    def _received(self, request: Request, modern: bool, keep_alive: bool) -> None:
        if self._busy or self._paused:
            self._queue(request, modern, keep_alive)
            return
        self._busy = True
        self._chunked = modern
        self._keep_alive = keep_alive and not self._context.leaving
        self._bodyless = request.method == "HEAD"
        outcome = self._app.take(request)
        self._more = b"" if request.more is None else request.more.wire
        self.answer(outcome)

    def _send_continue(self) -> None:
        if not self._busy and not self._waiting:
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # ── Answering ────────────────────────────────────────────────────────────────────────────────

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, Answer):
            self.stream = None
            self.whole(outcome.status, outcome.headers, outcome.body)
            return
        self.stream = outcome
        if self._paused:
            outcome.pause()
        try:
            outcome.begin(self)
        except Exception as error:  # a bug of ours; the client must not wait for ever
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        log.error("a request was not answered", exc_info=error)
        if self._headed:
            self.abort()
        else:
            self._keep_alive = False
            self.answer(failure())

    def whole(self, status: int, headers: Headers, body: bytes, rest: bytes = b"") -> bool:
        """Sends a complete answer; returns whether the client was still connected."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        size = len(body) + len(rest)
        if headers is STREAM and self._keep_alive and not self._more and not self._bodyless:
            begin = self._context.stream_heads[size]
        elif self._bodyless:
            begin, body, rest = self._head(status, headers.wire, size), b"", b""
        else:
            begin = self._head(status, headers.wire, size)
        if len(rest) <= ONE_WRITE_BYTES:
            transport.write(b"".join((begin, body, rest)))
        else:
            transport.writelines((begin + body, rest))
        self._next()
        return True

    def head(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Begins an answer of unknown length."""
        self._headed = True
        self._keep_alive = self._keep_alive and self._chunked and not self._bodyless
        first = self._part(body) if body and not self._bodyless else b""
        self._write(self._head(status, headers.wire, None) + first)

    def part(self, data: bytes) -> None:
        """Sends more of the body."""
        if not self._bodyless:
            self._write(self._part(data))

    def end(self, data: bytes) -> bool:
        """Sends the last of the body; returns whether the client was still connected."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if not self._bodyless:
            last = b"0\r\n\r\n"
            framed = (b"%x\r\n" % len(data), data, b"\r\n" + last) if data else (last,)
            transport.writelines(framed if self._chunked else (data,))  # not joined: data may be long
        self._headed = False
        self._next()
        return True

    def abort(self) -> None:
        """Resets the connection: the answer cannot be completed."""
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
            (
                STATUS.get(status, STATUS[500]),
                self._context.date,
                headers,
                self._more,
                framing,
                close,
                b"\r\n",
            )
        )

    def _answer_last(self, answer: Answer, more: bytes) -> None:
        self._busy = self._keep_alive = False
        self._more = more
        self._write(self._head(answer.status, answer.headers.wire, len(answer.body)) + answer.body)
        self._since = self._loop.time()
        transport = self._transport
        if transport is not None and transport.can_write_eof() and not transport.is_closing():
            transport.write_eof()  # closed when the client closes, or by the sweep

    def _switch_protocol(self, upgrade: Upgrade, rest: bytes) -> None:
        if self._busy or self._waiting:  # answers to earlier requests come first
            self._refuse(BadRequest("A change of protocol begins with its own request"))
            return
        try:
            self._app.admit(Request("GET", upgrade.path.decode(), b"", self._headers, b""))
        except ORSError as error:
            self._refuse(error)
            return
        if self._transport is not None:
            self._open.discard(self)
            self._stop_reading()
            self._context.disconnected()
            transport, self._transport = self._transport, None
            upgrade.take_over(transport, self._open, rest)

    # ── Between requests ─────────────────────────────────────────────────────────────────────────

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _next(self) -> None:
        self._busy = False
        if self._context.after_answer is not None:
            self._context.after_answer(self)
        self.stream = None
        if self._transport is None:
            return
        if not self._keep_alive:
            self._stop_reading()
            self._drop_waiting()  # they would run, and not be answered
            self._transport.close()
        elif self._waiting:
            self._take_waiting()
        else:
            self._since = self._loop.time()

    def fileno(self) -> int | None:
        return None if self._transport is None else int(self._transport.get_extra_info("socket").fileno())

    def shutdown(self) -> None:
        """Closes at the end of the server: now, or after the current answer."""
        self._keep_alive = False
        if self.stream is not None:
            self.stream.stop()
        elif not self._busy and self._transport is not None:
            self._transport.close()
