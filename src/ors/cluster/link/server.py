"""The server end of a link: answers requests that another server forwards."""

import asyncio
import struct
from collections.abc import Iterator
from itertools import islice

import ors.cluster.link.frames as frames
from ors._json import dumps
from ors.errors import BadRequest, Unavailable
from ors.server.app import App
from ors.server.connections.context import REQUEST_SECONDS, Open, Upgrade
from ors.server.http.answers import Answer, Headers, failure, refusal
from ors.server.http.streams import Outcome, Stream

LOAD_SECONDS = 0.25
"""How often a change of load is sent to the other server."""
HEARTBEAT_TICKS = 8
"""An unchanged load is sent once in this many times, so that silence means death."""
FRAME_ROOM = 128 * 1024
"""Greatest size of a request's frame besides its body."""
MAX_REQUESTS = 50_000
"""Requests that may be open on one link."""

FRAMES_PER_TURN = 256
"""Frames taken in one turn of the event loop: then answers go out first, and may pause the link."""

_SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: %b\r\n\r\n" % frames.PROTOCOL
)


def upgrade(app: App) -> tuple[bytes, Upgrade]:
    """Returns the upgrade that makes a connection to `app` a link."""

    def take_over(transport: asyncio.Transport, open_: Open, rest: bytes) -> None:
        LinkServer(app, open_).take_over(transport, rest)

    return frames.PROTOCOL, Upgrade(frames.PATH.encode(), take_over)


class LinkServer(asyncio.Protocol):
    """One link: receives requests and sends answers, many at a time."""

    def __init__(self, app: App, open_: Open) -> None:
        self.app = app
        self._open = open_  # all connections of the server
        self.paused = False
        """Whether the other server reads slower than this one writes."""
        self._transport: asyncio.Transport | None = None
        self._frames = frames.Frames(app.limits.body_bytes + FRAME_ROOM)
        self._decoded: Iterator[tuple[int, int, bytes]] | None = None  # received, and not taken yet
        self._replies: dict[int, _Reply] = {}
        self._sent_load: tuple[int, bool] | None = None
        self._ticks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ending = False
        self._unread = 0  # bytes that the other server had not read at the last sweep
        self._since = 0.0  # when it last read some

    def take_over(self, transport: asyncio.Transport, rest: bytes) -> None:
        """Turns an HTTP connection into a link; `rest` was received already."""
        transport.write(_SWITCHING)
        transport.set_protocol(self)
        self.connection_made(transport)
        if rest:
            self.data_received(rest)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._open.add(self)
        me = self.app.sessions.identity
        hello = frames.Hello(me.slot, me.incarnation, self.app.environments, self.app.limits.body_bytes)
        self.write(hello.frame())
        self._send_load()
        if self.app.leaving:
            self.goodbye()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drops all answers. Calls go on: their clients may come back through another server."""
        self._open.discard(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        for reply in list(self._replies.values()):
            reply.leave()
        self._replies.clear()

    def data_received(self, data: bytes) -> None:
        self._take_all(self._frames.feed(data))

    def _take_all(self, decoded: Iterator[tuple[int, int, bytes]]) -> None:
        count = 0
        try:
            for count, (kind, number, payload) in enumerate(islice(decoded, FRAMES_PER_TURN), 1):  # noqa: B007
                self._take(kind, number, payload)
        except (ValueError, struct.error):
            if self._transport is not None:
                self._transport.abort()
            return
        if count == FRAMES_PER_TURN and self._transport is not None:
            self._decoded = decoded
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Takes what was received already, then reads again; neither while the link is paused."""
        if self._transport is None or self.paused:
            return
        decoded, self._decoded = self._decoded, None
        if decoded is not None:
            self._take_all(decoded)
        if self._decoded is None and not self.paused and self._transport is not None:
            self._transport.resume_reading()

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if kind == frames.REQUEST and self.app.leaving:
            self.write(frames.frame(frames.REFUSED, number))
        elif kind == frames.REQUEST:
            if number in self._replies:
                raise ValueError(f"the number {number} is in use")
            reply = _Reply(self, number)
            if len(self._replies) >= MAX_REQUESTS:
                reply.answer(refusal(_too_many()))
            else:
                self._replies[number] = reply
                reply.answer(self._outcome(payload))
        elif kind == frames.FIND:
            found = self.app.sessions.presence(payload.decode(), asyncio.get_running_loop().time())
            self.write(frames.frame(frames.FOUND, number, b"%d" % found))
        elif reply := self._replies.get(number):  # type: ignore[assignment]
            if kind == frames.LEAVE:
                self.done(number)
                reply.leave()
            elif kind == frames.CREDIT:
                reply.credit(frames.read_credit(payload))

    def _outcome(self, payload: bytes) -> Outcome:
        try:
            return self.app.take(frames.read_request(payload), forwarded=True)
        except BadRequest as error:
            return self.app.refused(error)

    def _send_load(self) -> None:
        load = (len(self.app.sessions), self.app.sessions.accepts_sessions)
        self._ticks += 1
        if not self.paused and (load != self._sent_load or self._ticks % HEARTBEAT_TICKS == 0):
            self._sent_load = load
            self.write(frames.frame(frames.LOAD, 0, dumps(load)))
        self._timer = asyncio.get_running_loop().call_later(LOAD_SECONDS, self._send_load)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def done(self, number: int) -> None:
        self._replies.pop(number, None)
        if self._ending and not self._replies and self._transport is not None:
            self._transport.close()

    # ── Back-pressure ────────────────────────────────────────────────────────────────────────────

    def pause_writing(self) -> None:
        """Reads no more requests: the other server does not read their answers."""
        self.paused = True
        if self._transport is not None:
            self._transport.pause_reading()
        for reply in list(self._replies.values()):
            reply.hold()

    def resume_writing(self) -> None:
        self.paused = False
        self._go_on()
        for reply in list(self._replies.values()):
            if self.paused:
                return
            reply.credit(0)

    def sweep(self, now: float) -> None:
        """Closes the link if the other server does not read what was sent. An idle link stays."""
        if self._transport is None:
            return
        unread = self._transport.get_write_buffer_size()
        if not unread or unread != self._unread:
            self._unread, self._since = unread, now
        elif now - self._since > REQUEST_SECONDS:
            self._transport.abort()

    def fileno(self) -> int | None:
        return None if self._transport is None else int(self._transport.get_extra_info("socket").fileno())

    # ── The end ──────────────────────────────────────────────────────────────────────────────────

    def goodbye(self) -> None:
        """Asks the other server to send no more, and to close the link when it has all answers."""
        self.write(frames.frame(frames.BYE, 0))
        for reply in list(self._replies.values()):
            reply.stop()

    def shutdown(self) -> None:
        """Closes the link once all answers are sent."""
        self._ending = True
        for reply in list(self._replies.values()):
            reply.stop()
        if not self._replies and self._transport is not None:
            self._transport.close()


class _Reply:
    """One request and its answer: the sink of a link."""

    __slots__ = ("_credit", "_link", "_number", "_rest", "_stream")

    def __init__(self, link: LinkServer, number: int) -> None:
        self._link = link
        self._number = number
        self._credit = frames.WINDOW_BYTES
        self._rest: memoryview | None = None  # the end of the answer, as far as it has not been sent
        self._stream: Stream | None = None

    def leave(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.leave()
        self._rest = None

    def stop(self) -> None:
        """Ends a feed, which would go on for as long as its reader stays."""
        if self._stream is not None:
            self._stream.stop()

    def hold(self) -> None:
        if self._stream is not None:
            self._stream.pause()

    def credit(self, more: int) -> None:
        """Lets as much follow as the client has read.

        Raises:
            ValueError: that is more than was sent.
        """
        if self._credit + more > frames.WINDOW_BYTES:
            raise ValueError(f"a credit of {more} bytes is more than was sent")
        self._credit += more
        if self._link.paused:
            return
        if self._rest is not None:
            self._send_rest(self._rest)
        elif self._stream is not None and self._credit > 0:
            self._stream.resume()

    # ── As a sink ────────────────────────────────────────────────────────────────────────────────

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, Answer):
            self.whole(outcome.status, outcome.headers, outcome.body)
            return
        self._stream = outcome
        if self._link.paused:
            outcome.pause()
        outcome.begin(self)

    def whole(self, status: int, headers: Headers, body: bytes, rest: bytes = b"") -> bool:
        if len(body) + len(rest) > frames.PIECE_BYTES:
            self.head(status, headers)
            return self.end(body + rest)
        self._stream = None
        whole = frames.answer_frame(frames.WHOLE, self._number, status, headers.wire, body + rest)
        self._link.write(whole)
        self._link.done(self._number)
        return True

    def head(self, status: int, headers: Headers, body: bytes = b"") -> None:
        self._link.write(frames.answer_frame(frames.HEAD, self._number, status, headers.wire, body))

    def part(self, data: bytes) -> None:
        self._credit -= len(data)
        self._link.write(frames.frame(frames.PART, self._number, data))
        if self._credit <= 0 and self._stream is not None:
            self._stream.pause()

    def end(self, data: bytes) -> bool:
        self._stream = None
        self._rest = memoryview(data)
        self.credit(0)
        return True

    def abort(self) -> None:
        # Only an answer that has not begun is aborted here: nothing is forwarded twice.
        self.answer(failure())

    def _send_rest(self, rest: memoryview) -> None:
        while len(rest) <= frames.PIECE_BYTES or self._credit > 0:
            piece, left = _cut(rest)
            self._credit -= len(piece)
            self._rest = left
            if left is None:
                self._link.write(frames.frame(frames.END, self._number, piece))
                self._link.done(self._number)
                return
            self._link.write(frames.frame(frames.PART, self._number, piece))
            if self._link.paused:
                return
            rest = left


def _too_many() -> Unavailable:
    text = f"This link already has {MAX_REQUESTS} open requests"
    return Unavailable(text, retry_after=1, reason="limit")


def _cut(data: memoryview) -> tuple[bytes, memoryview | None]:
    if len(data) <= frames.PIECE_BYTES:
        return bytes(data), None
    piece = bytes(data[: frames.PIECE_BYTES])
    # Between two events if possible: should this server die, an `error` event can follow.
    end = piece.rfind(b"\n\n") + 2
    piece = piece[:end] if end > 1 else piece
    return piece, data[len(piece) :]
