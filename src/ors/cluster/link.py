"""Links between servers: one end forwards many requests over one connection, the other answers them."""

import asyncio
import logging
from typing import Protocol

from ors import _protocol
from ors._json import dumps
from ors._protocol import frames
from ors._protocol.link import AskingEnd, Window
from ors.cluster.handover import HandoverClient
from ors.errors import BadRequest, ORSError, Unavailable
from ors.server.app import App
from ors.server.connections.context import Open, Upgrade
from ors.server.connections.link import LinkServer
from ors.server.http.answers import Headers, failure, refusal
from ors.server.http.requests import Request, too_large
from ors.server.http.streams import Outcome, Sink, Stream

log = logging.getLogger("ors.cluster")

LONGEST_ANSWER = 2**31
MOST_UNSENT_BYTES = 64 * 2**20
"""How much may wait to be read by the other server; over it, requests are refused."""
LOST = "Session lost: the server that held it has died"
WORKER_LOST = "worker_lost"
_STREAM_TYPE = b"text/event-stream"


class LinkOwner(Protocol):
    """Receives what a link client learns about the other server, and answers in its place."""

    address: str
    handover: HandoverClient | None
    """How to give it clients' connections, if it is on this machine."""

    def give(self, *connections: int) -> bool:
        """Hands clients' connections over to it; False if it takes none now."""

    def hello(self, link: "LinkClient", hello: frames.Hello) -> None:
        """Called when the link is up."""

    def load(self, sessions: int, accepts: bool) -> None:
        """Called with the number of its sessions, and whether it takes more."""

    def goodbye(self) -> None:
        """Called when it is about to end and has no session left."""

    def refused(self, request: Request) -> Outcome:
        """Answers a request that it refused because it is about to end."""

    def lost(self, request: Request, sent: bool) -> Outcome:
        """Answers a request that it has not answered: the link broke, perhaps before it was `sent`."""

    def closed(self, link: "LinkClient") -> None:
        """Called when the link is closed."""


class LinkClient(AskingEnd, asyncio.Protocol):
    """A link to another server. When it closes, all requests that wait on it are answered at once."""

    def __init__(self, owner: LinkOwner, host: str, api_key: str = "", prefix: str = "") -> None:
        super().__init__(_upgrade(host, api_key, prefix), LONGEST_ANSWER)
        self.owner = owner
        self._finds: dict[int, asyncio.Future[int]] = {}
        self._open = True  # until `closed` was called
        self._greeted = False
        self._body_bytes = 0

    def connection_lost(self, exc: Exception | None) -> None:
        self._notify_closed()
        super().connection_lost(exc)
        for future in self._finds.values():
            if not future.done():
                future.set_result(0)
        self._finds.clear()

    def _misunderstood(self, error: Exception) -> None:
        log.warning("Closing the link to %s, protocol error: %s", self.owner.address, error)
        self.cut()

    def _notify_closed(self) -> None:
        if self._open:
            self._open = False
            self.owner.closed(self)

    def _told(self, kind: int, number: int, payload: bytes) -> None:
        if kind == frames.LOAD:
            self.owner.load(*frames.read_load(payload))
        elif kind == frames.HELLO:
            hello = frames.read_hello(payload)
            if self._greeted:
                raise ValueError("a second HELLO")
            self._greeted = True
            self._body_bytes = hello.body_bytes
            self.owner.hello(self, hello)
        elif kind == frames.FOUND:
            presence = frames.read_found(payload)
            asked = self._finds.pop(number, None)
            if asked is not None and not asked.done():
                asked.set_result(presence)
            if self._closing:
                self._close_if_idle()
        else:
            if kind == frames.BYE:
                self.owner.goodbye()
            super()._told(kind, number, payload)

    def _close_if_idle(self) -> None:
        if not self._finds:
            super()._close_if_idle()

    # ── Requests to the other server ─────────────────────────────────────────────────────────────

    def find(self, sid: str) -> asyncio.Future[int]:
        """Asks whether a session lives there (2), has ended there recently (1), or neither (0)."""
        future: asyncio.Future[int] = self._loop.create_future()
        if self.out.transport is None:
            future.set_result(0)
            return future
        number = self.next_number()
        self._finds[number] = future
        self.write(frames.frame(frames.FIND, number, sid.encode()))
        return future

    def open(self, forwarded: "Forwarded", request: Request) -> int:
        """Sends a request; returns its number, or 0 if nothing could be sent.

        Raises:
            BadRequest: the path, the query or a header does not fit into a frame.
            TooLarge: the body is over the other server's limit.
            Unavailable: the other server does not read what was sent to it.
        """
        if len(request.body) > self._body_bytes:
            raise too_large(self._body_bytes)
        if self.out.transport is None or self.out.transport.is_closing():
            self._notify_closed()  # so that no other request is sent here
            return 0
        if self.out.transport.get_write_buffer_size() > MOST_UNSENT_BYTES:
            raise Unavailable("The session's server is overloaded", retry_after=1, reason="limit")
        number = self.next_number()
        asked = (request.method, request.path, request.query, request.headers, request.body)
        self.write(frames.request_frame(number, asked))
        self.pending[number] = forwarded
        return number


class Forwarded(Stream):
    """One forwarded request, and its answer on the way to the client."""

    __slots__ = ("_opened", "_sink", "_streams", "_window", "link", "request")

    def __init__(self, link: LinkClient, request: Request) -> None:
        self.link = link
        self.request = request
        self._sink: Sink | None = None
        self._opened = self._streams = False
        self._window = Window(link.write)  # its number is that of the request, once it is sent

    def begin(self, sink: Sink) -> None:
        self._sink = sink
        try:
            self._window.number = self.link.open(self, self.request)
        except ORSError as error:
            self._sink = None
            sink.answer(refusal(error))
            return
        except Exception as error:  # a bug here: the client gets an answer all the same
            log.error("%s %s was not forwarded", self.request.method, self.request.path, exc_info=error)
            self._sink = None
            sink.answer(failure())
            return
        if not self._window.number:
            self.lost()

    def take(self, kind: int, payload: bytes) -> None:
        """Passes on a frame of the answer. Raises ValueError, struct.error."""
        sink = self._sink
        if sink is None:
            return
        if self._opened is not (kind in (frames.PART, frames.END)):
            raise ValueError(f"a frame of kind {kind} before or after its turn")
        if kind == frames.WHOLE:
            status, headers, body = frames.read_answer(payload)
            self._sink = None
            self.link.done(self._window.number)
            sink.whole(status, Headers.read(headers), body)
        elif kind == frames.HEAD:
            status, headers, body = frames.read_answer(payload)
            self._opened, self._streams = True, _STREAM_TYPE in headers
            sink.head(status, Headers.read(headers), body)
        elif kind == frames.PART:
            sink.part(payload)
            self._window.read(len(payload))
        elif kind == frames.END:
            self._sink = None
            self.link.done(self._window.number)
            sink.end(payload)
        elif kind == frames.REFUSED:
            self._sink = None
            self.link.done(self._window.number)
            sink.answer(self.link.owner.refused(self.request))

    def lost(self) -> None:
        sink, self._sink = self._sink, None
        if sink is None:
            return
        if not self._opened:
            sink.answer(self.link.owner.lost(self.request, sent=bool(self._window.number)))
        elif self._streams:
            sink.end(_protocol.error_event(LOST, WORKER_LOST))
        else:
            sink.abort()

    def pause(self) -> None:
        self._window.paused = True

    def resume(self) -> None:
        self._window.paused = False
        self._window.read(0)

    def leave(self) -> None:
        self._sink = None
        if self._window.number:
            self.link.write(frames.frame(frames.LEAVE, self._window.number))
            self.link.done(self._window.number)


def _upgrade(host: str, api_key: str, prefix: str) -> bytes:
    key = f"{_protocol.API_KEY}: {api_key}\r\n" if api_key else ""
    return (
        f"GET {prefix}{frames.PATHS[frames.PEERS]} HTTP/1.1\r\nHost: {host}\r\n{key}"
        f"Connection: Upgrade\r\nUpgrade: {frames.PEERS.decode()}\r\n\r\n"
    ).encode()


# ── The server end ───────────────────────────────────────────────────────────────────────────────

LOAD_SECONDS = 0.25
"""How often a change of load is sent to the other server."""
HEARTBEAT_TICKS = 8
"""An unchanged load is sent once in this many times, so that silence means death."""
FRAME_ROOM = 128 * 1024
"""Greatest size of a request's frame besides its body."""
MAX_REQUESTS = 50_000
"""Requests that may be open on one link."""


def upgrade(app: App) -> tuple[bytes, Upgrade]:
    """Returns the upgrade that makes a connection to `app` a link of another server."""

    def take_over(
        transport: asyncio.Transport, open_: Open, headers: dict[bytes, bytes], rest: bytes
    ) -> None:
        PeerLink(app, open_).take_over(transport, frames.PEERS, rest)

    return frames.PEERS, Upgrade(frames.PATHS[frames.PEERS].encode(), take_over)


class PeerLink(LinkServer):
    """A link of another server, which has checked host and origin of what it forwards."""

    heartbeat_seconds = LOAD_SECONDS

    def __init__(self, app: App, open_: Open) -> None:
        super().__init__(app, open_, {}, app.limits.body_bytes + FRAME_ROOM)
        self.app = app
        self._most = MAX_REQUESTS
        self._sent_load: tuple[int, bool] | None = None
        self._ticks = 0

    def _greet(self) -> None:
        me, limits = self.app.sessions.identity, self.app.limits
        self.write(frames.Hello(me.slot, me.incarnation, self.app.environments, limits.body_bytes).frame())
        if self.app.leaving:
            self.goodbye()

    def _heartbeat(self) -> None:
        load = (len(self.app.sessions), self.app.sessions.accepts_sessions)
        self._ticks += 1
        if not self.paused and (load != self._sent_load or self._ticks % HEARTBEAT_TICKS == 0):
            self._sent_load = load
            self.write(frames.frame(frames.LOAD, 0, dumps(load)))

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if kind == frames.FIND:
            found = self.app.sessions.presence(payload.decode(), self._loop.time())
            self.write(frames.frame(frames.FOUND, number, b"%d" % found))
        elif kind == frames.REQUEST and self.app.leaving:
            self.write(frames.frame(frames.REFUSED, number))
        elif kind != frames.CALL:
            super()._take(kind, number, payload)

    def _outcome(self, kind: int, payload: bytes) -> Outcome:
        try:
            return self.app.take(Request(*frames.read_request(payload)), forwarded=True)
        except BadRequest as error:
            return self.app.refused(error)

    def _is_forgotten(self, silent: float) -> bool:
        return False
