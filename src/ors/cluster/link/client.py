"""The end of a link at the server that forwards: one connection to another server, for many requests."""

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Any, Protocol

from ors import _protocol
from ors._json import loads
from ors.cluster.handover import Receiver
from ors.cluster.link import frames
from ors.cluster.routing.classify import LOST, WORKER_LOST, endpoint, lost, needs_session
from ors.errors import ORSError, Unavailable
from ors.server.http.answers import STREAM, Answer, Headers, failure, refusal
from ors.server.http.requests import Request, too_large
from ors.server.http.streams import Outcome, Sink, Stream

log = logging.getLogger("ors.cluster")

LONGEST_ANSWER = 2**31
MOST_UNSENT_BYTES = 64 * 2**20
"""What may wait to be read by the other server: over it, requests are refused."""
_SWITCHED = b"HTTP/1.1 101"
_STREAM_TYPE = b"text/event-stream"


class PeerEvents(Protocol):
    """Who is told what the other server says of itself."""

    def hello(self, link: "LinkClient", me: dict[str, Any]) -> None:
        """It is there."""

    def load(self, sessions: int, taking: bool) -> None:
        """So many sessions are there, and more are welcome or not."""

    def bye(self) -> None:
        """It is about to end, and has no session any more."""

    def again(self, request: Request) -> Outcome:
        """What gives the answer to a request that it refused, since it is about to end."""

    def closed(self, link: "LinkClient") -> None:
        """The connection is closed."""


class LinkClient(asyncio.Protocol):
    """The connection. What is open on it when it closes is told so at once."""

    def __init__(
        self,
        told: PeerEvents,
        host: str,
        api_key: str = "",
        prefix: str = "",
        receiver: Receiver | None = None,
    ) -> None:
        self._told = told
        self.receiver = receiver
        """The other server, if it takes clients' connections over."""
        self._loop = asyncio.get_running_loop()
        self._hello = _upgrade(host, api_key, prefix)
        self._transport: asyncio.Transport | None = None
        self._frames = frames.Frames(LONGEST_ANSWER)
        self._head = b""  # what has come of the answer to the upgrade
        self._switched = False
        self._number = 0
        self._exchanges: dict[int, Forwarded] = {}
        self._asked: dict[int, asyncio.Future[int]] = {}
        self._open = True  # until whoever has it is told otherwise
        self._parting = False
        self._body_bytes = 0
        self.heard = 0.0
        """When something came last."""

    # ── What the event loop tells ────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The other server listens."""
        self._transport = transport  # type: ignore[assignment]
        self._transport.set_write_buffer_limits(high=2**20)  # type: ignore[union-attr]
        self._transport.write(self._hello)  # type: ignore[union-attr]

    def data_received(self, data: bytes) -> None:
        """Frames have arrived."""
        self.heard = self._loop.time()
        if not self._switched:
            self._head, end, data = (self._head + data).partition(b"\r\n\r\n")
            self._switched = bool(end)
            if (
                not self._head.startswith(_SWITCHED[: len(self._head)])
                or len(self._head) > frames.PIECE_BYTES
            ):
                self.cut()
                return
        try:
            for kind, number, payload in self._frames.feed(data):
                self._take(kind, number, payload)
        except (ValueError, struct.error):
            self.cut()

    def connection_lost(self, exc: Exception | None) -> None:
        """The other server has died, or has ended. Everyone who waits for it is told now."""
        self._transport = None
        self._tell_closed()
        exchanges, self._exchanges = self._exchanges, {}
        for exchange in exchanges.values():
            exchange.lost()
        for future in self._asked.values():
            if not future.done():
                future.set_result(0)
        self._asked.clear()

    def fileno(self) -> int:
        """The file descriptor of the connection; -1 if there is none."""
        return -1 if self._transport is None else int(self._transport.get_extra_info("socket").fileno())

    def _tell_closed(self) -> None:
        if self._open:
            self._open = False
            self._told.closed(self)

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if kind == frames.LOAD:
            sessions, taking = loads(payload)
            self._told.load(sessions, taking)
        elif kind == frames.HELLO:
            me = loads(payload)
            self._body_bytes = me["body_bytes"]
            self._told.hello(self, me)
        elif kind == frames.FOUND:
            asked = self._asked.pop(number, None)
            if asked is not None and not asked.done():
                asked.set_result(int(payload))
            self._part()
        elif kind == frames.BYE:
            self._parting = True
            self._told.bye()
            self._part()
        else:
            exchange = self._exchanges.get(number)
            if exchange is not None:  # else its client has left
                exchange.take(kind, payload)

    def _part(self) -> None:
        if self._parting and not self._exchanges and not self._asked and self._transport is not None:
            self._transport.close()

    # ── What is asked of the other server ────────────────────────────────────────────────────────

    def ask(
        self, request: Request, answer_locally: Callable[[Request], Outcome] | None = None
    ) -> "Forwarded":
        """The answer of the other server. `at_home` answers what any server can, if it dies meanwhile."""
        return Forwarded(self, request, answer_locally)

    def find(self, sid: str) -> asyncio.Future[int]:
        """Whether the session lives there (2), has ended there of late (1), or neither (0)."""
        future: asyncio.Future[int] = self._loop.create_future()
        if self._transport is None:
            future.set_result(0)
            return future
        self._number = self._number + 1 & 0xFFFFFFFF
        self._asked[self._number] = future
        self._transport.write(frames.frame(frames.FIND, self._number, sid.encode()))
        return future

    def open(self, exchange: "Forwarded", request: Request) -> int:
        """Sends a request; gives the number of the exchange, or 0 if nothing could be sent.

        Raises:
            BadRequest: the path, the query or a header cannot be passed on.
            TooLarge: the body is over the other server's limit.
            Unavailable: the other server does not read what was sent to it.
        """
        if len(request.body) > self._body_bytes:
            raise too_large(self._body_bytes)
        if self._transport is None or self._transport.is_closing():
            self._tell_closed()  # nobody else should try
            return 0
        if self._transport.get_write_buffer_size() > MOST_UNSENT_BYTES:
            raise Unavailable("The server of this session is busy", retry_after=1, reason="limit")
        number = self._number = self._number + 1 & 0xFFFFFFFF or 1
        self._transport.write(frames.request_frame(number, request))
        self._exchanges[number] = exchange
        return number

    def say(self, kind: int, number: int, payload: bytes = b"") -> None:
        """Sends a word about an exchange."""
        if self._transport is not None:
            self._transport.write(frames.frame(kind, number, payload))

    def done(self, number: int) -> None:
        """An exchange is over."""
        self._exchanges.pop(number, None)
        self._part()

    def again(self, request: Request) -> Outcome:
        """What gives the answer to a request that the other server refused."""
        return self._told.again(request)

    def cut(self) -> None:
        """Closes at once."""
        if self._transport is not None:
            self._transport.abort()


class _Retried(Request):
    """A request whose answer was lost with a link."""

    @classmethod
    def of(cls, request: Request) -> "_Retried":
        return cls(request.method, request.path, request.query, request.headers, request.body)


class Forwarded(Stream):
    """One forwarded request, and its answer on the way to the client."""

    __slots__ = (
        "_answer_locally",
        "_link",
        "_number",
        "_opened",
        "_paused",
        "_request",
        "_sink",
        "_streams",
        "_unread",
    )

    def __init__(
        self, link: LinkClient, request: Request, answer_locally: Callable[[Request], Outcome] | None
    ) -> None:
        self._link = link
        self._request = request
        self._answer_locally = answer_locally
        self._sink: Sink | None = None
        self._number = 0
        self._opened = self._streams = self._paused = False
        self._unread = 0  # what the other server does not know to be read

    @property
    def receiver(self) -> Receiver | None:
        """The other server, if it takes clients' connections over."""
        return self._link.receiver

    @property
    def ends(self) -> bool:
        """Whether the answer comes to an end; what the standard has no endpoint for may be a feed."""
        return endpoint(self._request) is not None

    def begin(self, sink: Sink) -> None:
        """Sends the request."""
        self._sink = sink
        try:
            self._number = self._link.open(self, self._request)
        except ORSError as error:
            self._sink = None
            sink.answer(refusal(error))
            return
        except Exception as error:  # a fault of ours: whoever asked is answered all the same
            log.error("%s %s was not forwarded", self._request.method, self._request.path, exc_info=error)
            self._sink = None
            sink.answer(failure())
            return
        if not self._number:
            self.lost()

    def take(self, kind: int, payload: bytes) -> None:
        """A frame of the answer."""
        sink = self._sink
        if sink is None:
            return
        if kind == frames.WHOLE:
            self._over()
            status, headers, body = frames.read_answer(payload)
            sink.whole(status, Headers.read(headers), body)
        elif kind == frames.HEAD:
            status, headers, body = frames.read_answer(payload)
            self._opened, self._streams = True, _STREAM_TYPE in headers
            sink.head(status, Headers.read(headers), body)
        elif kind == frames.PART:
            sink.part(payload)
            self._read(len(payload))
        elif kind == frames.END:
            self._over()
            sink.end(payload)
        elif kind == frames.REFUSED:
            self._over()
            sink.answer(self._link.again(self._request))

    def lost(self) -> None:
        """The other server has gone, and the answer with it."""
        sink, self._sink = self._sink, None
        if sink is None:
            return
        if not self._opened:
            sink.answer(self._instead())
        elif self._streams:
            sink.end(_protocol.error_event(LOST, WORKER_LOST))
        else:
            sink.abort()

    def _instead(self) -> Outcome:
        what = endpoint(self._request)
        if what is _protocol.CALL and self._number:
            # It may have run: an error status would make clients of the field send it again.
            first = _protocol.task_id_event(next(_protocol.task_ids()))
            return Answer(200, first + _protocol.error_event(LOST, WORKER_LOST), STREAM)
        if self._answer_locally is not None and not needs_session(self._request):
            return self._answer_locally(self._request)
        if what is _protocol.CREATE or type(self._request) is _Retried:
            return lost(self._request)
        # Only the link may be broken: whoever it is for is looked for once more.
        return self._link.again(_Retried.of(self._request))

    def pause(self) -> None:
        """The client reads slower than the answer comes: no more is let on the way."""
        self._paused = True

    def resume(self) -> None:
        """It has caught up."""
        self._paused = False
        self._read(0)

    def leave(self) -> None:
        """The client has gone."""
        self._sink = None
        if self._number:
            self._link.say(frames.LEAVE, self._number)
            self._link.done(self._number)

    def _read(self, count: int) -> None:
        self._unread += count
        if not self._paused and self._unread >= frames.WINDOW_BYTES // 2:
            self._link.say(frames.CREDIT, self._number, self._unread.to_bytes(4))
            self._unread = 0

    def _over(self) -> None:
        self._sink = None
        self._link.done(self._number)


def _upgrade(host: str, api_key: str, prefix: str) -> bytes:
    key = f"{_protocol.API_KEY}: {api_key}\r\n" if api_key else ""
    return (
        f"GET {prefix}{frames.PATH} HTTP/1.1\r\nHost: {host}\r\n{key}"
        f"Connection: Upgrade\r\nUpgrade: {frames.PROTOCOL.decode()}\r\n\r\n"
    ).encode()
