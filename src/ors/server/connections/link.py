"""The server end of a link: answers the requests of many sessions over one connection."""

import asyncio
import logging
import struct
from collections.abc import Iterator
from itertools import islice

from ors._json import dumps
from ors._protocol import frames
from ors._protocol.link import FrameWriter
from ors.errors import BadRequest, Unavailable
from ors.server.connections.context import KEEP_ALIVE_SECONDS, REQUEST_SECONDS, Open, Responder, Upgrade
from ors.server.http.answers import Answer, Headers, failure, refusal
from ors.server.http.requests import IDEMPOTENCY_KEY, SESSION_ID, Request
from ors.server.http.streams import Outcome, Sink, Stream

log = logging.getLogger("ors.server")

HEARTBEAT_SECONDS = 2.0
"""How often something is sent at least, so that silence means death."""
FRAMES_PER_TURN = 256
"""Frames taken in one turn of the event loop: then answers go out first, and may pause the link."""
_HOP_BY_HOP = (b"connection", b"upgrade")


def upgrade(app: Responder) -> tuple[bytes, Upgrade]:
    """Returns the upgrade that lets a client send all its requests to `app` over one connection."""

    def take_over(
        transport: asyncio.Transport, open_: Open, headers: dict[bytes, bytes], rest: bytes
    ) -> None:
        LinkServer(app, open_, headers).take_over(transport, frames.CLIENTS, rest)

    return frames.CLIENTS, Upgrade(frames.PATHS[frames.CLIENTS].encode(), take_over)


class LinkServer(asyncio.Protocol):
    """One link of a client: receives requests and sends answers, many at a time."""

    heartbeat_seconds = HEARTBEAT_SECONDS

    def __init__(
        self,
        app: Responder,
        open_: Open,
        headers: dict[bytes, bytes],
        longest: int = frames.LONGEST_OF_CLIENT,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._frames = frames.Frames(longest)
        self.heard = self._loop.time()
        """When the other end was last heard from."""
        self.out = FrameWriter(self._loop)
        self.write = self.out.write
        self._app = app
        self._headers = {name: value for name, value in headers.items() if name not in _HOP_BY_HOP}
        self._open = open_  # all connections of the server
        self.paused = False
        """Whether the other end reads slower than this one writes."""
        self._decoded: Iterator[tuple[int, int, bytes]] | None = None  # received, and not taken yet
        self._replies: dict[int, _Reply] = {}
        self._most = app.limits.multiplexed
        self._timer: asyncio.TimerHandle | None = None
        self._ending = False
        self._unread = 0  # bytes that the other end had not read at the last sweep
        self._since = 0.0  # when it last read some

    def take_over(self, transport: asyncio.Transport, protocol: bytes, rest: bytes) -> None:
        """Turns an HTTP connection into a link; `rest` was received already."""
        switching = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: %b\r\n\r\n"
        transport.write(switching % protocol)
        transport.set_protocol(self)
        self.connection_made(transport)
        if rest:
            self.data_received(rest)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.out.transport = transport  # type: ignore[assignment]
        self._open.add(self)
        self._greet()
        self._beat()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drops all answers. Calls go on: their clients may come back."""
        self._open.discard(self)
        self.out.transport = None
        if self._timer is not None:
            self._timer.cancel()
        for reply in list(self._replies.values()):
            reply.leave()
        self._replies.clear()

    def _greet(self) -> None:
        self.write(frames.frame(frames.HELLO, 0, dumps({"prefix": self._app.id_prefix})))

    def _beat(self) -> None:
        self._heartbeat()
        self._timer = self._loop.call_later(self.heartbeat_seconds, self._beat)

    def _heartbeat(self) -> None:
        if not self.paused:
            self.write(frames.frame(frames.LOAD, 0, frames.ACCEPTS if self._app.accepts_sessions else b""))

    # ── Requests ─────────────────────────────────────────────────────────────────────────────────

    def data_received(self, data: bytes) -> None:
        self.heard = self._loop.time()
        self._take_all(self._frames.feed(data))

    def _take_all(self, decoded: Iterator[tuple[int, int, bytes]]) -> None:
        count = 0
        try:
            for count, (kind, number, payload) in enumerate(islice(decoded, FRAMES_PER_TURN), 1):  # noqa: B007
                self._take(kind, number, payload)
        except (ValueError, struct.error):
            self.out.cut()
            return
        if count == FRAMES_PER_TURN and self.out.transport is not None:
            self._decoded = decoded
            self.out.transport.pause_reading()
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Takes what was received already, then reads again; neither while the link is paused."""
        if self.out.transport is None or self.paused:
            return
        decoded, self._decoded = self._decoded, None
        if decoded is not None:
            self._take_all(decoded)
        if self._decoded is None and not self.paused and self.out.transport is not None:
            self.out.transport.resume_reading()

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if kind in (frames.CALL, frames.REQUEST):
            if number in self._replies:
                raise ValueError(f"the number {number} is in use")
            reply = _Reply(self, number, kind == frames.CALL)
            if len(self._replies) >= self._most:
                reply.answer(refusal(_too_many(self._most)))
            else:
                self._replies[number] = reply
                reply.answer(self._outcome(kind, payload))
        elif reply := self._replies.get(number):  # type: ignore[assignment]
            if kind == frames.LEAVE:
                self.done(number)
                reply.leave()
            elif kind == frames.CREDIT:
                reply.credit(frames.read_credit(payload))

    def _outcome(self, kind: int, payload: bytes) -> Outcome:
        if kind == frames.CALL:
            path, sid, key, body = frames.read_call(payload)
            headers = {**self._headers, SESSION_ID: sid}
            if key:
                headers[IDEMPOTENCY_KEY] = key
            return self._app.take(Request("POST", path, b"", headers, body))
        try:
            method, path, query, given, body = frames.read_request(payload)
        except BadRequest as error:
            return self._app.refused(error)
        return self._app.take(Request(method, path, query, {**self._headers, **given}, body))

    def done(self, number: int) -> None:
        self._replies.pop(number, None)
        if self._ending and not self._replies:
            self.out.close()

    # ── Back-pressure ────────────────────────────────────────────────────────────────────────────

    def pause_writing(self) -> None:
        """Reads no more requests: the other end does not read their answers."""
        self.paused = True
        if self.out.transport is not None:
            self.out.transport.pause_reading()
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
        """Closes the link if the other end does not read, or has nothing to ask for long."""
        if self.out.transport is None:
            return
        unread = self.out.transport.get_write_buffer_size()
        if not unread or unread != self._unread:
            self._unread, self._since = unread, now
        elif now - self._since > REQUEST_SECONDS:
            self.out.cut()
        if self._is_forgotten(now - self.heard):
            self.out.close()

    def _is_forgotten(self, silent: float) -> bool:
        limit = REQUEST_SECONDS if self._frames.is_partial else KEEP_ALIVE_SECONDS
        return silent > limit and not self._replies and not self.paused

    # ── The end ──────────────────────────────────────────────────────────────────────────────────

    def goodbye(self) -> None:
        self.write(frames.frame(frames.BYE, 0))
        for reply in list(self._replies.values()):
            reply.stop()

    def shutdown(self) -> None:
        self._ending = True
        for reply in list(self._replies.values()):
            reply.stop()
        if not self._replies:
            self.out.close()


class _Reply(Sink):
    """One request and its answer: the sink of a link."""

    __slots__ = ("_credit", "_is_call", "_last", "_link", "_number", "_rest", "_stream")

    def __init__(self, link: LinkServer, number: int, is_call: bool) -> None:
        self._link = link
        self._number = number
        self._is_call = is_call
        self._credit = frames.WINDOW_BYTES
        self._rest: memoryview | None = None  # the end of the answer, as far as it has not been sent
        self._last = frames.END  # the kind of its last frame
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
        """Lets as much follow as the client has read. Raises ValueError: that is more than was sent."""
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
        try:
            outcome.begin(self)
        except Exception as error:  # a bug of ours; the other requests of this link are not to suffer
            log.error("a request was not answered", exc_info=error)
            self.answer(failure())

    def result(self, task_id: str, ending: bytes) -> bool:
        if not self._is_call or not ending.startswith(b"{"):
            return super().result(task_id, ending)
        self._stream = None
        if len(ending) > frames.PIECE_BYTES:
            self._last = frames.RESULT
            self.part(task_id.encode() + b" ")
            return self.end(ending)
        self._link.write(frames.result_frame(self._number, task_id.encode(), ending))
        self._link.done(self._number)
        return True

    def whole(self, status: int, headers: Headers, body: bytes) -> bool:
        if len(body) > frames.PIECE_BYTES:
            self.head(status, headers)
            return self.end(body)
        self._stream = None
        self._link.write(frames.answer_frame(frames.WHOLE, self._number, status, headers.wire, body))
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
            piece, left = _cut(rest, between_events=self._last == frames.END)
            self._credit -= len(piece)
            self._rest = left
            last = left is None
            # Not as one frame: copying a long piece takes longer than all else here.
            self._link.write(frames.header(self._last if last else frames.PART, self._number, len(piece)))
            self._link.write(piece)
            if left is None:
                self._link.done(self._number)
                return
            if self._link.paused:
                return
            rest = left


def _too_many(most: int) -> Unavailable:
    text = f"This connection already has {most} open requests"
    return Unavailable(text, retry_after=1, reason="limit")


def _cut(data: memoryview, *, between_events: bool) -> tuple[memoryview, memoryview | None]:
    size = frames.PIECE_BYTES
    if len(data) <= size:
        return data, None
    if between_events:  # if possible: should this server die, an `error` event can follow
        size = bytes(data[:size]).rfind(b"\n\n") + 2
        size = size if size > 1 else frames.PIECE_BYTES
    return data[:size], data[size:]
