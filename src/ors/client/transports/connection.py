"""One HTTP/1.1 connection, parsed by httptools."""

import asyncio
import socket
from typing import TYPE_CHECKING, cast

import httptools

from ors.client.transports.base import HeaderFields, Incoming, NotSent

if TYPE_CHECKING:
    from ors.client.transports.http import DirectTransport


HIGH_WATER_BYTES = 2**20
MAX_HEAD_BYTES = 2**20
"""Most bytes in a row that are not of a body: headers, interim responses, trailers."""
MAX_INTERIM = 5
"""Most interim responses to a request, as in Go's net/http."""
_INTERIM = frozenset({100, *range(102, 200)})  # after 101, and statuses below 100, nothing can follow
_KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


def detect_silence(made: socket.socket) -> None:
    """Lets TCP itself detect a server that vanished, even while nothing is sent."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class HTTPConnection(asyncio.BufferedProtocol):
    """A connection that carries one exchange at a time. All of a pool receive into one buffer, in turns."""

    def __init__(self, pool: "DirectTransport", loop: asyncio.AbstractEventLoop) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._exchange: _Exchange | None = None
        self.parser: httptools.HttpResponseParser | None = None
        self._paused = False
        self.loop = loop
        self.idle_since = 0.0
        self.bare_bytes = 0
        """Bytes since the last byte of a body."""
        self.interim = 0

    async def exchange(self, request: bytes) -> "_Exchange":
        """Sends a request; returns when the head of its response has arrived."""
        if self._transport is None or self.closing:
            raise NotSent("the connection was closed as soon as it was made")
        exchange = self._exchange = _Exchange(self)
        self.parser = httptools.HttpResponseParser(exchange)
        self.bare_bytes = self.interim = 0
        self._transport.write(request)
        return await exchange.arrived()

    @property
    def closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def cut(self) -> None:
        self._pool.forget(self)
        if self._transport is not None:
            self._transport.abort()

    def flow(self, unread: int) -> None:
        """Pauses reading while over `HIGH_WATER_BYTES` of the response are unread."""
        if self._transport is not None and not self.closing:
            if unread > HIGH_WATER_BYTES and not self._paused:
                self._paused = True
                self._transport.pause_reading()
            elif self._paused and not unread:
                self._paused = False
                self._transport.resume_reading()

    def done(self) -> None:
        """Ends an exchange whose response is complete."""
        self._exchange = None
        self.flow(0)
        parser, self.parser = self.parser, None
        assert parser is not None
        if parser.should_keep_alive() and not self.closing:
            self._pool.release(self)
        else:
            self.cut()

    def refuse(self) -> None:
        """Ends an exchange with a response after which nothing can follow."""
        self._exchange = None
        self.cut()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not, by name
        self._pool.adopt(self)
        detect_silence(transport.get_extra_info("socket"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._pool.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._exchange is None or self.parser is None:
            self.cut()  # bytes without a request
            return
        self.bare_bytes += nbytes
        try:
            self.parser.feed_data(self._pool.buffer[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._give_up(error)
        if self.bare_bytes > MAX_HEAD_BYTES:
            self._give_up(ValueError(f"over {MAX_HEAD_BYTES} bytes of headers"))
        elif self.interim > MAX_INTERIM:
            self._give_up(ValueError(f"over {MAX_INTERIM} interim responses (1xx)"))

    def _give_up(self, error: Exception) -> None:
        self.connection_lost(error)
        self.cut()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leaves the pool, and fails the exchange that is open."""
        self._pool.forget(self)
        exchange, self._exchange, self.parser = self._exchange, None, None  # breaks their reference cycle
        if exchange is not None:
            exchange.broke(exc)


class _Exchange(Incoming):
    """One response as it arrives: receives the parser's callbacks."""

    def __init__(self, connection: HTTPConnection) -> None:
        super().__init__(connection.loop)
        self._connection = connection
        self._unread = 0
        self.headers = HeaderFields()

    def close(self) -> None:
        if not self._complete:
            self._connection.cut()

    def _taken(self, size: int) -> None:
        self._unread = 0
        self._connection.flow(0)

    # Callbacks of httptools.

    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("a second response to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.begun.done():
            return  # a trailer
        # As the class does, without another call for each header.
        dict.__setitem__(self.headers, name.decode("latin-1").lower(), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        parser = self._connection.parser
        assert parser is not None
        self.status = parser.get_status_code()
        if self.status < 200 and self.status in _INTERIM:
            self.headers.clear()
            self._connection.interim += 1
        elif not self.begun.done():
            self.begun.set_result(None)
            if self.status < 200:
                self._complete = True
                self._connection.refuse()

    def on_body(self, body: bytes) -> None:
        self._connection.bare_bytes = 0
        self._unread += len(body)
        self._connection.flow(self._unread)
        self.add(body)

    def on_message_complete(self) -> None:
        if self.status >= 200:
            self._connection.done()
            self.add(last=True)

    def broke(self, cause: Exception | None) -> None:
        """Ends the response: complete if it has no length and the server closed, else broken."""
        sized = "content-length" in self.headers or "transfer-encoding" in self.headers
        if self.begun.done() and cause is None and not sized:
            self.add(last=True)
        else:
            self.lose(f"the connection broke: {cause or 'closed by the server'}")
