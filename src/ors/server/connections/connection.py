"""One HTTP/1.1 connection, parsed by httptools and answered without ASGI messages.

This is the hot path: a request is parsed, taken by the application and answered in one write, without a
task of its own (a call's tool runs in one task, which writes its result). This halves the cost of a call,
compared to ASGI.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ors._protocol import result_events, task_id_event
from ors.errors import BadRequest, ORSError
from ors.server.connections.context import (
    LAST_READ_SECONDS,
    ONE_WRITE_BYTES,
    REQUEST_SECONDS,
    STATUS,
    ConnectionContext,
    Open,
    Upgrade,
    too_slow,
)
from ors.server.connections.parser import RequestParser
from ors.server.connections.states import (
    ASKING,
    CLOSED,
    CLOSING,
    FREE,
    IDLE,
    NEXT,
    REFUSED,
    STREAMING,
    TAKEN,
    Answering,
)
from ors.server.http.answers import STREAM, Answer, Headers, failure
from ors.server.http.requests import Request
from ors.server.http.streams import Outcome, Sink, Stream

log = logging.getLogger("ors.server")


class Framing(NamedTuple):
    """How the bytes of one answer are sent."""

    chunked: bool = True
    """For HTTP/1.0, the end of the connection ends a stream."""
    keep_alive: bool = True
    bodyless: bool = False
    """The answer to a HEAD."""
    more: bytes = b""
    """Additional headers."""


PLAIN = Framing()


class Connection(Sink, asyncio.Protocol):
    """A client's connection: answers requests one after the other."""

    # CPython reads attributes quickly only of classes with slots, or with at most 30 attributes.
    __slots__ = (
        "_app", "_context", "_framing", "_loop", "_open", "_paused", "_transport", "_unread",
        "_unread_since", "_waiting", "data_received", "note", "parser", "state", "stream",
    )  # fmt: skip

    def __init__(
        self, context: ConnectionContext, open_: Open, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self._context = context
        self._app = context.app
        self._loop = loop or asyncio.get_running_loop()
        self._open = open_  # all connections of the server
        self._transport: asyncio.Transport | None = None
        self.parser = RequestParser(self, context, self._loop)
        self.data_received = self.parser.feed  # type: ignore[method-assign]
        self.state: Answering = FREE
        self.stream: Stream | None = None
        """Writes the answer, if it takes time."""
        self._framing = PLAIN  # of the current answer
        self._waiting: deque[tuple[Callable[[], None], int]] = deque()  # pipelined, with their body bytes
        self._paused = False  # the client reads slower than we write
        self._unread = 0  # bytes that the client had not read at the last sweep ...
        self._unread_since = 0.0  # ... and since when they are so many
        self.note: Any = None
        """What `after_answer` remembers of this client."""

    # ── Called by the event loop ────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._open.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Ends, without the client. Its calls go on: it may come back for them."""
        self._leave(CLOSED)
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.leave()

    def pause_writing(self) -> None:
        """Stops writing and reading: the client reads slower than we write."""
        self._paused = True
        self.pause_reading()
        if self.stream is not None:
            self.stream.pause()

    def resume_writing(self) -> None:
        self._paused = False
        if self.stream is not None:
            self.stream.resume()
        self._take_waiting()
        self.resume_reading()

    # ── Called by the parser ────────────────────────────────────────────────────────────────────

    def received(self, request: Request, modern: bool, keep_alive: bool) -> None:
        """Answers a request, after those before it; `modern` is HTTP/1.1."""
        if self.state is not FREE or self._paused:
            self._queue(partial(self.received, request, modern, keep_alive), len(request.body))
            self.pause_reading()
            return
        self.state = TAKEN
        outcome = self._app.take(request)
        more, leaving = request.more, self._context.leaving
        if keep_alive and not leaving and more is None and request.method != "HEAD":
            self._framing = PLAIN
        else:
            wire = b"" if more is None else more.wire
            self._framing = Framing(modern, keep_alive and not leaving, request.method == "HEAD", wire)
        self.answer(outcome)

    def refuse(self, error: ORSError, more: bytes) -> None:
        """Answers a request that cannot be read, after all that came before it, and closes."""
        if self._transport is not None and not self._transport.is_closing():
            last = partial(self._answer_last, self._app.refused(error), more)
            if self.state is FREE and not self._waiting:
                last()
            else:
                self._queue(last, 0)

    def send_continue(self) -> None:
        if self.state is FREE and not self._waiting:
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def switch_protocol(self, upgrade: Upgrade, headers: dict[bytes, bytes], rest: bytes) -> None:
        """Hands the client to another protocol, with the bytes of it that have arrived.

        Raises:
            ORSError: the client may not use it, or not now.
        """
        if self.state is not FREE or self._waiting:  # answers to earlier requests come first
            raise BadRequest("A change of protocol begins with its own request")
        asked = self._app.admit(Request("GET", upgrade.path.decode(), b"", headers, b""))
        if not isinstance(asked, int):  # a server that has to ask others offers no other protocol
            asked.close()
            raise BadRequest("This server speaks only HTTP/1.1")
        transport = self._transport
        if transport is not None:
            self._leave(CLOSED)
            upgrade.take_over(transport, self._open, headers, rest)

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Reads again, unless something else holds the client up."""
        if not self._is_held and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

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
        if self.state is STREAMING:
            self.abort()
        else:
            self._framing = self._framing._replace(keep_alive=False)
            self.answer(failure())

    def result(self, task_id: str, ending: bytes) -> bool:
        return self.whole(200, STREAM, task_id_event(task_id), result_events(ending))

    def whole(self, status: int, headers: Headers, body: bytes, rest: bytes = b"") -> bool:
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        size = len(body) + len(rest)
        if self._framing is PLAIN and headers is STREAM:
            begin = self._context.stream_heads[size]
        else:
            begin = self._head(status, headers.wire, size)
            if self._framing.bodyless:
                body = rest = b""
        if size <= ONE_WRITE_BYTES:
            transport.write(b"".join((begin, body, rest)))
        else:
            transport.writelines((begin, body, rest))
        self._next()
        return True

    def head(self, status: int, headers: Headers, body: bytes = b"") -> None:
        self.state = STREAMING
        framing = self._framing
        if framing.bodyless or not framing.chunked:
            self._framing = framing._replace(keep_alive=False)
        first = self._part(body) if body and not framing.bodyless else b""
        self._write(self._head(status, headers.wire, None) + first)

    def part(self, data: bytes) -> None:
        if not self._framing.bodyless:
            self._write(self._part(data))

    def end(self, data: bytes) -> bool:
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if not self._framing.bodyless:
            last = b"0\r\n\r\n"
            framed = (b"%x\r\n" % len(data), data, b"\r\n" + last) if data else (last,)
            transport.writelines(framed if self._framing.chunked else (data,))  # not joined: may be long
        self._next()
        return True

    def abort(self) -> None:
        """Resets the connection: the answer cannot be completed."""
        self._leave(CLOSING)
        if self._transport is not None:
            self._transport.abort()

    def _part(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._framing.chunked else data

    def _head(self, status: int, headers: bytes, length: int | None) -> bytes:
        chunked, keep_alive, _, more = self._framing
        if length is not None:
            framing = b"content-length: %d\r\n" % length
        else:
            framing = b"transfer-encoding: chunked\r\n" if chunked else b""
        close = b"" if keep_alive else b"connection: close\r\n"
        start = STATUS.get(status, STATUS[500])
        return b"".join((start, self._context.date, headers, more, framing, close, b"\r\n"))

    def _answer_last(self, answer: Answer, more: bytes) -> None:
        self._framing = Framing(keep_alive=False, more=more)
        self._write(self._head(answer.status, answer.headers.wire, len(answer.body)) + answer.body)
        self.state = REFUSED
        self.parser.since = self._loop.time()
        transport = self._transport
        if transport is not None and transport.can_write_eof() and not transport.is_closing():
            transport.write_eof()  # closed when the client closes, or by the sweep

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    # ── Between requests ─────────────────────────────────────────────────────────────────────────

    def _next(self) -> None:
        if self._context.after_answer is not None:
            self._context.after_answer(self)
        self.stream = None
        if self._framing is not PLAIN and not self._framing.keep_alive:
            self._close()
            return
        self.state = FREE
        self.parser.since = self._loop.time()
        if self._waiting:
            self._take_waiting()

    def _queue(self, answer: Callable[[], None], size: int) -> None:
        self._waiting.append((answer, size))
        self._context.arriving.bytes += size

    def _take_waiting(self) -> None:
        """Answers the next queued request, if there is one and the client reads its answers."""
        if self._waiting and self.state is FREE and not self._paused:
            self.state = NEXT
            # Not called here, or a thousand pipelined requests would be a thousand frames deep.
            self._loop.call_soon(self._answer_waiting)

    def _answer_waiting(self) -> None:
        if self.state is NEXT:  # otherwise the connection has ended
            self.state = FREE
            transport = self._transport
            # The last answer may have been more than the client reads, or the client may be leaving.
            if not self._paused and transport is not None and not transport.is_closing():
                answer, size = self._waiting.popleft()
                self._context.arriving.bytes -= size
                answer()
                self.resume_reading()

    @property
    def _is_held(self) -> bool:
        return self._paused or bool(self._waiting) or self.parser.state is ASKING

    def sweep(self, now: float) -> None:
        """Closes the connection if nothing has happened on it for too long."""
        if self._transport is None:
            return
        parser, unread = self.parser, self._transport.get_write_buffer_size()
        if unread != self._unread:  # the client reads, however slowly
            self._unread, self._unread_since = unread, now
            parser.since = now
        if unread and now - self._unread_since > REQUEST_SECONDS:
            self.abort()
        elif parser.is_late(now, self._is_held):
            parser.refuse(too_slow())
        elif self.state in (FREE, REFUSED) and now - parser.since > self._idle_limit:
            self._close()

    @property
    def _idle_limit(self) -> float:
        if self.state is REFUSED:
            return LAST_READ_SECONDS
        return self._context.idle_seconds if self.parser.state is IDLE else REQUEST_SECONDS

    @property
    def spare(self) -> int | None:
        """The file descriptor, if nothing is under way and another process could take the client over."""
        transport = self._transport
        if self.state is not FREE or self._waiting or self.parser.state is not IDLE or transport is None:
            return None
        unsent, tls = transport.get_write_buffer_size(), transport.get_extra_info("ssl_object")
        if transport.is_closing() or unsent or tls is not None:
            return None
        end = transport.get_extra_info("socket")  # a link comes over a unix socket, and stays
        return None if end.family == socket.AF_UNIX else int(end.fileno())

    # ── The end ──────────────────────────────────────────────────────────────────────────────────

    def shutdown(self) -> None:
        """Closes at the end of the server: now, or after the current answer."""
        self._framing = self._framing._replace(keep_alive=False)
        if self.stream is not None:
            self.stream.stop()
        else:
            self._close()

    def _close(self) -> None:
        self._leave(CLOSING)
        if self._transport is not None:
            self._transport.close()

    def _leave(self, state: Answering) -> None:
        """Reads nothing further, and answers nothing that waits: it would run for nobody."""
        if self.state is not CLOSED:
            self.state = state
            self.parser.stop()
            self._context.arriving.bytes -= sum(size for _, size in self._waiting)
            self._waiting.clear()
            if state is CLOSED:
                self._transport = None
                self._open.discard(self)
