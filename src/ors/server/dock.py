"""The end of a link at the server that answers: other servers' doors forward requests to it."""

import asyncio
import struct
from typing import Any

from uvicorn.server import ServerState

from ors._json import dumps
from ors._sse import PING
from ors.server import frames
from ors.server.answers import STREAM, Answer, failure
from ors.server.app import App
from ors.server.calls import Call
from ors.server.feeds import Feed
from ors.server.relay import Relay, Switch

LOAD_SECONDS = 0.25
"""How old a door's picture of our load may be."""
HEARTBEAT_TICKS = 8
"""Without news, one is sent every so many times, so that doors can tell silence from death."""
FRAME_ROOM = 128 * 1024
"""What a request's frame holds besides its body."""

_SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: %b\r\n\r\n" % frames.PROTOCOL
)


class Dock(asyncio.Protocol):
    """One link: requests come in, answers go out, many at a time."""

    def __init__(self, app: App, state: ServerState) -> None:
        self.app = app
        self.state = state
        self.paused = False
        self.loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frames = frames.Frames(app.limits.body_bytes + FRAME_ROOM)
        self._exchanges: dict[int, _Exchange] = {}
        self._told: tuple[int, bool] | None = None
        self._ticks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ending = False

    def take_over(self, transport: asyncio.Transport, rest: bytes) -> None:
        """From now on, frames come over what was a connection of HTTP; `rest` has come already."""
        transport.write(_SWITCHING)
        transport.set_protocol(self)
        self.connection_made(transport)
        if rest:
            self.data_received(rest)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A door has connected; it is told who we are."""
        self._transport = transport  # type: ignore[assignment]
        self.state.connections.add(self)  # type: ignore[arg-type]
        me = self.app.house.identity
        hello = {
            "slot": me.slot,
            "incarnation": me.incarnation,
            "environments": self.app.environments,
            "body_bytes": self.app.limits.body_bytes,
        }
        self.write(frames.frame(frames.HELLO, 0, dumps(hello)))
        self._tell_load()
        if self.app.house.leaving:
            self.part()

    def connection_lost(self, exc: Exception | None) -> None:
        """The door has gone. Calls go on: their clients may come back through another."""
        self.state.connections.discard(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        for exchange in list(self._exchanges.values()):
            exchange.leave()
        self._exchanges.clear()

    def data_received(self, data: bytes) -> None:
        """Frames have arrived."""
        try:
            for kind, number, payload in self._frames.feed(data):
                self._take(kind, number, payload)
        except (ValueError, struct.error):  # it speaks something else
            if self._transport is not None:
                self._transport.abort()

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if kind == frames.REQUEST and self.app.house.leaving:
            self.write(frames.frame(frames.REFUSED, number))
        elif kind == frames.REQUEST:
            exchange = self._exchanges[number] = _Exchange(self, number)
            exchange.take(payload)
        elif kind == frames.FIND:
            found = self.app.sessions.standing(payload.decode(), asyncio.get_running_loop().time())
            self.write(frames.frame(frames.FOUND, number, b"%d" % found))
        elif exchange := self._exchanges.get(number):  # type: ignore[assignment]
            if kind == frames.LEAVE:
                del self._exchanges[number]
                exchange.leave()
            elif kind == frames.CREDIT:
                exchange.credit(int.from_bytes(payload))

    def _tell_load(self) -> None:
        load = (len(self.app.sessions), self.app.house.taking)
        self._ticks += 1
        if load != self._told or self._ticks % HEARTBEAT_TICKS == 0:
            self._told = load
            self.write(frames.frame(frames.LOAD, 0, dumps(load)))
        self._timer = asyncio.get_running_loop().call_later(LOAD_SECONDS, self._tell_load)

    def write(self, data: bytes) -> None:
        """Sends a frame."""
        if self._transport is not None:
            self._transport.write(data)

    def done(self, number: int) -> None:
        """An exchange is over."""
        self._exchanges.pop(number, None)
        if self._ending and not self._exchanges and self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        """The door reads slower than we write."""
        self.paused = True

    def resume_writing(self) -> None:
        """It has caught up."""
        self.paused = False
        for exchange in list(self._exchanges.values()):
            exchange.credit(0)

    def sweep(self, now: float) -> None:
        """A link is never closed for being quiet."""

    def part(self) -> None:
        """Asks the door to go elsewhere from now on, and to close the link when it has all its answers."""
        self.write(frames.frame(frames.BYE, 0))
        for exchange in list(self._exchanges.values()):
            exchange.shutdown()

    def shutdown(self) -> None:
        """uvicorn's word to end: now, or after the answers that are under way."""
        self._ending = True
        for exchange in list(self._exchanges.values()):
            exchange.shutdown()
        if not self._exchanges and self._transport is not None:
            self._transport.close()


class _Exchange:
    """One request and its answer."""

    __slots__ = ("_call", "_credit", "_dock", "_feed", "_later", "_number", "_opened", "_request", "_rest")

    def __init__(self, dock: Dock, number: int) -> None:
        self._dock = dock
        self._number = number
        self._call: Call | None = None
        self._feed: Feed | None = None
        self._opened = False
        self._credit = frames.WINDOW_BYTES
        self._rest: memoryview | None = None
        self._request: Any = None
        self._later: asyncio.Task[None] | None = None

    def take(self, payload: bytes) -> None:
        app = self._dock.app
        self._request = request = frames.read_request(payload)
        outcome = app.take_forwarded(request)
        if type(outcome) is Call:
            self._follow(outcome)
        elif type(outcome) is Answer:
            self._answer(outcome)
        elif type(outcome) is Feed:
            self._stream(outcome)
        else:
            # Nothing is forwarded twice.
            assert not isinstance(outcome, Relay | Switch | Call | Answer | Feed)
            self._later = asyncio.get_running_loop().create_task(self._answer_later(outcome))
            self._dock.state.tasks.add(self._later)
            self._later.add_done_callback(self._dock.state.tasks.discard)

    async def _answer_later(self, outcome: Any) -> None:
        try:
            answer = await self._dock.app.finish(self._request, outcome)
        except asyncio.CancelledError:
            self._answer(failure())  # cancelled from within: whoever is still there waits for an answer
            raise
        self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        if len(answer.body) <= frames.PIECE_BYTES:
            self._whole(answer)
        else:
            self._head(answer.status, answer.headers.wire)
            self._send(answer.body)

    def _whole(self, answer: Answer) -> None:
        made = frames.answer_frame(
            frames.WHOLE, self._number, answer.status, answer.headers.wire, answer.body
        )
        self._dock.write(made)
        self._dock.done(self._number)

    # ── A call's stream ──────────────────────────────────────────────────────────────────────────

    def _follow(self, call: Call) -> None:
        self._call = call
        if call.tail is not None:
            self._call_done()
        else:
            call.listen(self._call_done)
            self._dock.app.opening.add(self, self._dock.loop)

    def beat(self) -> None:
        """The call takes its time: the stream opens, or is kept alive."""
        if self._call is None:
            return
        if not self._opened:
            self._head(200, STREAM.wire, self._call.head)
        else:
            self._dock.write(frames.frame(frames.PART, self._number, PING))
        self._dock.app.pings.add(self, self._dock.loop)

    def _call_done(self) -> None:
        call, self._call = self._call, None
        if call is None or call.tail is None:
            return
        if self._opened:
            self._dock.app.pings.remove(self)
            self._send(call.tail)
        else:
            self._dock.app.opening.remove(self)
            self._answer(Answer(200, call.head + call.tail, STREAM))
        call.taken()

    def leave(self) -> None:
        """Nobody is there any more to read the answer."""
        call, self._call = self._call, None
        if call is not None:
            call.unlisten(self._call_done)
            self._dock.app.opening.remove(self)
            self._dock.app.pings.remove(self)
        if self._later is not None and self._request.waiting:
            self._later.cancel()
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()
        self._rest = None

    # ── A feed's stream ──────────────────────────────────────────────────────────────────────────

    def _stream(self, feed: Feed) -> None:
        self._head(200, STREAM.wire)
        if self._request.method == "HEAD":
            self._send(b"")
            return
        self._feed = feed
        feed.open(self._feed_part)

    def _feed_part(self, data: bytes) -> bool:
        if self._dock.paused or self._credit <= 0:
            return False
        self._credit -= len(data)
        self._dock.write(frames.frame(frames.PART, self._number, data))
        return True

    def shutdown(self) -> None:
        """Ends what would go on for as long as its reader stays."""
        if self._feed is not None:
            self.leave()
            self._send(b"")

    # ── Long answers ─────────────────────────────────────────────────────────────────────────────

    def _head(self, status: int, headers: bytes, body: bytes = b"") -> None:
        self._opened = True
        self._dock.write(frames.answer_frame(frames.HEAD, self._number, status, headers, body))

    def _send(self, data: bytes) -> None:
        self._rest = memoryview(data)
        self.credit(0)

    def credit(self, more: int) -> None:
        """The client has read so much: as much again may follow."""
        self._credit += more
        while self._rest is not None and (len(self._rest) <= frames.PIECE_BYTES or self._credit > 0):
            if self._dock.paused:
                return
            piece, self._rest = _cut(self._rest)
            self._credit -= len(piece)
            if self._rest is None:
                self._dock.write(frames.frame(frames.END, self._number, piece))
                self._dock.done(self._number)
            else:
                self._dock.write(frames.frame(frames.PART, self._number, piece))


def _cut(data: memoryview) -> tuple[bytes, memoryview | None]:
    if len(data) <= frames.PIECE_BYTES:
        return bytes(data), None
    piece = bytes(data[: frames.PIECE_BYTES])
    # Between two events where there are some: should this server die, an `error` event can follow.
    end = piece.rfind(b"\n\n") + 2
    piece = piece[:end] if end > 1 else piece
    return piece, data[len(piece) :]
