"""One HTTP/1.1 connection, read by httptools, answered without ASGI's messages in between.

This is the hot path: a request is parsed, taken by the application and answered in one write, without a
task of its own (a call's tool runs in one task, which writes its result). Against ASGI it saves half of a
call's cost. It stands in for uvicorn's own HTTP protocol, and keeps to what uvicorn expects of one.
"""

import asyncio
import logging
import socket
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from ors._sse import PING
from ors.errors import BadRequest
from ors.server.answers import STREAM, Answer, failure
from ors.server.app import App
from ors.server.calls import Call
from ors.server.dock import Dock
from ors.server.feeds import Feed
from ors.server.outcomes import Later, Outcome
from ors.server.port import MOVE_AFTER, ONE_WRITE_BYTES, STATUS, Port
from ors.server.reader import Reader
from ors.server.relay import Elsewhere, Relay, Switch
from ors.server.requests import Request

log = logging.getLogger("ors.server")


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
        super().__init__(port, _loop or asyncio.get_running_loop())
        self._state = server_state
        self._keep_alive = True
        self._chunked = True  # an HTTP/1.0 client gets its stream until the connection ends
        self._bodyless = False  # the answer to a HEAD
        self._more = b""  # headers that this answer has besides
        self._later: tuple[Request, asyncio.Task[None]] | None = None  # what will give the answer
        self._call: Call | None = None  # whose stream is the answer
        self._opened = False  # whether that stream has begun
        self._feed: Feed | None = None  # whose stream is the answer, until the client leaves
        self._relay: Relay | None = None  # from where the answer comes
        self._elsewhere: Elsewhere | None = None  # who gave the last such answer
        self._relayed = 0  # how many in a row came from there
        self._dock: Dock | None = None  # what this connection becomes
        self._paused = False  # the client reads slower than we write

    # ── What the event loop tells ────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = transport  # type: ignore[assignment]
        self._state.connections.add(self)  # type: ignore[arg-type]
        self._port.came()

    def connection_lost(self, error: Exception | None) -> None:
        """The client has gone. Its calls go on: it may come back for them."""
        self._state.connections.discard(self)
        self._transport = None
        self._stop_reading()
        self._leave_line()
        self._port.left()
        self._leave_call()
        self._leave_feed()
        relay, self._relay = self._relay, None
        if relay is not None:
            relay.leave()
        if self._later is not None and self._later[0].waiting:
            self._later[1].cancel()  # nobody is there any more to take the place that it waits for

    def pause_writing(self) -> None:
        """The client reads slower than we write."""
        self._paused = True
        if self._relay is not None:
            self._relay.pause()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._paused = False
        if self._relay is not None:
            self._relay.resume()

    # ── What the reader tells ────────────────────────────────────────────────────────────────────

    def _received(self, request: Request, modern: bool, keep_alive: bool) -> None:
        if self._busy:
            self._wait(request, modern, keep_alive)
            return
        self._busy = True
        self._chunked = modern
        self._keep_alive = keep_alive and not self._port.leaving
        self._bodyless = request.method == "HEAD"
        try:
            outcome = self._app.take(request)
            self._more = b"" if request.more is None else request.more.wire
            if type(outcome) is Call:
                self._follow(outcome)
            else:
                self._settle(request, outcome)
        except Exception as error:
            self._fail(request, error)

    def _go_on(self) -> None:
        if not self._busy:
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # ── Answering ────────────────────────────────────────────────────────────────────────────────

    def settle(self, request: Request, outcome: Outcome) -> None:
        """Answers with what `take` gave."""
        try:
            self._settle(request, outcome)
        except Exception as error:
            self._fail(request, error)

    def _fail(self, request: Request, error: Exception) -> None:
        """Whatever went wrong here, the client learns that no answer will come."""
        log.error("%s %s was not answered", request.method, request.path, exc_info=error)
        if self._busy and self._feed is None:
            self._keep_alive = False
            self._answer(failure())
        else:
            self.broken()

    def _settle(self, request: Request, outcome: Outcome) -> None:
        self._relay = None
        if type(outcome) is Call:
            self._follow(outcome)
        elif type(outcome) is Answer:
            self._answer(outcome)
        elif type(outcome) is Feed:
            self._stream(outcome)
        elif isinstance(outcome, Relay):
            self._ask(outcome)
        elif isinstance(outcome, Switch):
            assert isinstance(self._app, App)
            self._dock = Dock(self._app, self._state)
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
            (STATUS.get(status, STATUS[500]), self._port.date, headers, self._more, framing, close, b"\r\n")
        )

    def _answer_last(self, answer: Answer, more: bytes) -> None:
        self._busy = self._keep_alive = False
        self._more = more
        self._write(self._head(answer.status, answer.headers.wire, len(answer.body)) + answer.body)
        self._since = self._loop.time()
        transport = self._transport
        if transport is not None and transport.can_write_eof() and not transport.is_closing():
            transport.write_eof()  # it closes when the client does, or is swept

    def _take_link(self, rest: bytes) -> None:
        if self._busy:  # nothing is spoken before the answer to an earlier request
            self._refuse(BadRequest("A link begins with its own request"))
            return
        self._reading = False
        method, path = self._parser.get_method().decode(), self._url.decode("ascii", "replace")
        self._received(Request(method, path, b"", self._headers, b""), True, False)
        if self._dock is not None and self._transport is not None:
            self._state.connections.discard(self)
            self._stop_reading()
            transport, self._transport = self._transport, None
            self._dock.take_over(transport, rest)

    # ── An answer from elsewhere ─────────────────────────────────────────────────────────────────

    def _ask(self, relay: Relay) -> None:
        self._relay = relay
        if relay.elsewhere is not self._elsewhere:
            self._elsewhere, self._relayed = relay.elsewhere, 0
        self._relayed += 1
        relay.begin(self)

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        """It has come at once."""
        head = self._head(status, headers, len(body))
        self._write(head if self._bodyless else head + body)
        self._next()

    def head(self, status: int, headers: bytes) -> None:
        """It begins."""
        self._keep_alive = self._keep_alive and self._chunked and not self._bodyless
        self._write(self._head(status, headers, None))

    def part(self, data: bytes) -> None:
        """More of it."""
        if not self._bodyless:
            self._write(self._part(data))

    def end(self, data: bytes) -> None:
        """The last of it."""
        last = b"0\r\n\r\n" if self._chunked else b""
        self._write(b"" if self._bodyless else (self._part(data) if data else b"") + last)
        self._next()

    def broken(self) -> None:
        """It cannot be completed, nor can anything be said: the client sees a connection that breaks."""
        if self._transport is not None:
            self._transport.abort()

    # ── A call's stream ──────────────────────────────────────────────────────────────────────────

    def _follow(self, call: Call) -> None:
        self._call = call
        self._opened = False
        if call.tail is not None:
            self._call_done()
        else:
            call.listen(self._call_done)
            self._app.opening.add(self, self._loop)

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
        self._app.pings.add(self, self._loop)

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
            head, tail = call.head, call.tail
            if self._keep_alive and not self._more:  # as nearly always: most of it is at hand
                begin = b"%bcontent-length: %d\r\n\r\n%b" % (self._port.stream, len(head) + len(tail), head)
            else:
                begin = self._head(200, STREAM.wire, len(head) + len(tail)) + head
            if len(tail) <= ONE_WRITE_BYTES:
                self._transport.write(begin + tail)
            else:
                self._transport.writelines((begin, tail))
        call.taken()
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
        if self._relay is None:
            self._relayed = 0
        if self._relayed >= MOVE_AFTER or self._port.heir is not None:
            self._loop.call_soon(self._move)  # when the answer is written
        self._later = self._relay = None
        self._state.total_requests += 1
        if self._transport is None:
            return
        if not self._keep_alive:
            self._stop_reading()  # what has come behind it would run, and not be answered
            self._transport.close()
        elif self._waiting and not self._transport.is_closing():
            # Not from here, or a thousand pipelined requests would be a thousand frames deep.
            self._busy = True
            self._loop.call_soon(self._waiting.popleft())
            if not self._waiting:
                self._transport.resume_reading()
        else:
            self._since = self._loop.time()

    def _move(self) -> None:
        """Goes to the server that the client keeps asking, which reads what comes next."""
        there, spare = self._port.heir or self._elsewhere, self.spare
        if there is not None and spare is not None:
            self._relayed = 0
            if there.give(spare):
                self.let_go()

    def let_go(self) -> None:
        """Closes it here alone: another process has it, and the client's end stays open."""
        self.broken()

    @property
    def spare(self) -> int | None:
        """The file descriptor, if it is a client's, nothing is under way, and another process could go on."""
        transport = self._transport
        if self._busy or self._reading or transport is None or transport.is_closing():
            return None
        if transport.get_write_buffer_size() or transport.get_extra_info("ssl_object") is not None:
            return None
        end = transport.get_extra_info("socket")  # by a unix socket comes a link, which is for this server
        return None if end.family == socket.AF_UNIX else int(end.fileno())

    def relays(self, feeds: bool) -> bool:
        """Whether the answer comes from another server; that of a feed counts if wanted."""
        return self._relay is not None and (feeds or self._relay.ends)

    def shutdown(self) -> None:
        """uvicorn's word to end: now, or after the answer that is under way."""
        self._keep_alive = False
        if self._leave_feed():
            self._write(b"0\r\n\r\n" if self._chunked else b"")
            self._next()
        elif not self._busy and self._transport is not None:
            self._transport.close()
