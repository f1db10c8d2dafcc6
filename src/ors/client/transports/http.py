"""HTTP/1.1 straight on sockets, by httptools: a tool call costs a fifth of what it costs by aiohttp."""

import asyncio
import socket
import ssl
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self, TypeVar, cast
from urllib.parse import SplitResult

import httptools

from ors.client.options import Options
from ors.client.transports.base import Broken, NotSent, Response
from ors.client.transports.headers import HeaderFields
from ors.client.transports.urls import authorization, port_of

__all__ = ["DirectTransport", "HTTPConnection"]

HIGH_WATER_BYTES = 2**20
MAX_HEAD_BYTES = 2**20
"""More than this without a byte of a body (a head, interim answers, trailers) is no answer."""
MAX_COOKIES = 64
CONNECTS_AT_ONCE = 256
RESOLVED_SECONDS = 10.0
Address = tuple[int, Any]
P = TypeVar("P", bound=asyncio.BaseProtocol)
_INTERIM = frozenset({100, *range(102, 200)})  # 101 is a last answer, and so is what HTTP does not know
_KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


class DirectTransport:
    """Carries requests to the server at `base_url` over one pool of kept-alive connections."""

    def __init__(self, base_url: SplitResult, options: Options) -> None:
        self._next = base_url
        """Where connections go."""
        self._prefix = base_url.path.rstrip("/")
        self._authority = base_url.netloc.rpartition("@")[2]
        self._where = f"{base_url.scheme}://{self._authority}"
        self._through = ""
        self._fixed = [f"Host: {self._authority}", *authorization("Authorization", base_url)]
        self._options = options
        self._tls: ssl.SSLContext | None = None
        self._cookies: OrderedDict[str, str] = OrderedDict()
        self._addresses: list[Address] = []
        self._resolved_until = 0.0
        self._last_good: Address | None = None
        self._idle: dict[HTTPConnection, None] = {}
        self._open: set[HTTPConnection] = set()
        self._connects = asyncio.Semaphore(CONNECTS_AT_ONCE)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """The answer, as soon as its status and headers are here."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._move_to(loop)
        request = self._head(method, path, headers, body) + (body or b"")
        connection = self._take(loop.time()) or await self._connect(loop)
        try:
            exchange = await connection.exchange(request)
        except BaseException:
            connection.cut()
            raise
        if "set-cookie" in exchange.headers:
            self._remember(exchange.headers["set-cookie"])
        return exchange

    async def close(self) -> None:
        """Gives up all connections."""
        self._idle.clear()
        for connection in tuple(self._open):
            connection.cut()

    def adopt(self, connection: "HTTPConnection") -> None:
        """A connection is open."""
        self._open.add(connection)

    def release(self, connection: "HTTPConnection") -> None:
        """A connection has carried an answer whole, and can carry another."""
        connection.idle_since = connection.loop.time()
        self._idle[connection] = None

    def forget(self, connection: "HTTPConnection") -> None:
        """A connection is closed."""
        self._idle.pop(connection, None)
        self._open.discard(connection)

    def _take(self, now: float) -> "HTTPConnection | None":
        while self._idle:
            connection, _ = self._idle.popitem()  # the one used last: the others may grow old and go
            if now - connection.idle_since < self._options.keepalive_seconds and not connection.closing:
                return connection
            connection.cut()
        return None

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> "HTTPConnection":
        try:
            async with self._connects, asyncio.timeout(self._options.connect_seconds):
                return await self._connected(loop)
        except (OSError, TimeoutError) as error:
            why = str(error) or "no connection in time"
            raise NotSent(f"{self._where} cannot be reached{self._through}: {why}") from error

    async def _connected(self, loop: asyncio.AbstractEventLoop) -> "HTTPConnection":
        return await self._with_protocol(loop, HTTPConnection(self, loop))

    async def _with_protocol(self, loop: asyncio.AbstractEventLoop, protocol: P) -> P:
        tls = self._next.scheme == "https"
        await loop.create_connection(
            lambda: protocol,
            sock=await self._connected_socket(loop),
            ssl=self._tls_context() if tls else None,
            server_hostname=self._next.hostname if tls else None,
        )
        return protocol

    async def _connected_socket(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        addresses = await self._resolved(loop)
        errors: list[Exception] = []
        for family, address in addresses:
            made = socket.socket(family, socket.SOCK_STREAM)
            made.setblocking(False)
            try:
                # An address that does not answer must not use up the time of one that does.
                async with asyncio.timeout(self._options.connect_seconds / len(addresses)):
                    await loop.sock_connect(made, address)
            except (OSError, TimeoutError) as error:
                made.close()
                errors.append(error)
            except BaseException:
                made.close()
                raise
            else:
                self._last_good = family, address
                return made
        raise errors[0]

    async def _resolved(self, loop: asyncio.AbstractEventLoop) -> list[Address]:
        # Asked every few seconds, not for every connection; where the last one went comes first.
        if loop.time() > self._resolved_until:
            host, port = self._next.hostname or "", port_of(self._next)
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            self._addresses = [(family, address) for family, _, _, _, address in found]
            self._resolved_until = loop.time() + RESOLVED_SECONDS
        return sorted(self._addresses, key=lambda address: address != self._last_good)

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        # A script may call asyncio.run() more than once: connections end with their loop.
        self._loop = loop
        self._resolved_until = 0.0
        self._idle.clear()
        self._open.clear()
        self._connects = asyncio.Semaphore(CONNECTS_AT_ONCE)

    def _head(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", *self._fixed]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if self._cookies:
            lines.append("Cookie: " + "; ".join(f"{name}={value}" for name, value in self._cookies.items()))
        if body is not None or method == "POST":
            lines.append(f"Content-Length: {len(body or b'')}")
        head = "\r\n".join(lines)
        if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
            raise ValueError("a header must not contain a line break")
        return head.encode("latin-1") + b"\r\n\r\n"

    def _remember(self, cookie: str) -> None:
        # Load balancers that keep a client on one server do it with cookies.
        name, equals, value = cookie.partition(";")[0].partition("=")
        if equals:
            self._cookies[name.strip()] = value.strip()
            if len(self._cookies) > MAX_COOKIES:
                self._cookies.popitem(last=False)


class HTTPConnection(asyncio.Protocol):
    """One connection, carrying one exchange at a time."""

    def __init__(self, pool: DirectTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._exchange: _Exchange | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._paused = False
        self.loop = loop
        self.idle_since = 0.0
        self.bare_bytes = 0
        """What has come since the last byte of a body."""

    async def exchange(self, request: bytes) -> "_Exchange":
        """Sends a request; returns when the head of its response is here."""
        if self._transport is None or self.closing:
            raise NotSent("the connection was closed as soon as it was made")
        exchange = self._exchange = _Exchange(self)
        self._parser = httptools.HttpResponseParser(exchange)
        self.bare_bytes = 0
        self._transport.write(request)
        await exchange.begun
        exchange.check()
        return exchange

    @property
    def closing(self) -> bool:
        """Whether it can carry nothing more."""
        return self._transport is None or self._transport.is_closing()

    def cut(self) -> None:
        """Closes at once."""
        self._pool.forget(self)
        if self._transport is not None:
            self._transport.abort()

    def flow(self, waiting: int) -> None:
        """Reads no faster than the answer is read."""
        if self._transport is not None and not self.closing:
            if waiting > HIGH_WATER_BYTES and not self._paused:
                self._paused = True
                self._transport.pause_reading()
            elif self._paused and not waiting:
                self._paused = False
                self._transport.resume_reading()

    def status(self) -> int:
        """The status of the answer whose headers have come."""
        assert self._parser is not None
        return self._parser.get_status_code()

    def done(self) -> None:
        """The exchange has ended, whole."""
        self._exchange = None
        self.flow(0)
        parser, self._parser = self._parser, None
        assert parser is not None
        if parser.should_keep_alive() and not self.closing:
            self._pool.release(self)
        else:
            self.cut()

    def refuse(self) -> None:
        """The exchange has ended with an answer after which nothing can follow."""
        self._exchange = None
        self.cut()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Joins the pool."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not, by name
        self._pool.adopt(self)
        made = transport.get_extra_info("socket")
        # A peer that vanished without a word is noticed by TCP itself, also while nothing is streamed.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def data_received(self, data: bytes) -> None:
        """Parses what has arrived."""
        if self._exchange is None or self._parser is None:
            self.cut()  # nobody asked
            return
        self.bare_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._give_up(error)
        if self.bare_bytes > MAX_HEAD_BYTES:
            self._give_up(ValueError(f"over {MAX_HEAD_BYTES} bytes of headers"))

    def _give_up(self, error: Exception) -> None:
        self.connection_lost(error)
        self.cut()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leaves the pool; an exchange that is open fails."""
        self._pool.forget(self)
        exchange, self._exchange, self._parser = self._exchange, None, None  # they hold each other
        if exchange is not None:
            exchange.broke(exc)


class _Exchange:
    """One answer as it arrives: the parser's callbacks on one side, a `Response` on the other."""

    __slots__ = (
        "_broke",
        "_chunks",
        "_connection",
        "_more",
        "_waiting",
        "_whole",
        "begun",
        "headers",
        "status",
    )

    def __init__(self, connection: HTTPConnection) -> None:
        self._connection = connection
        self._chunks: deque[bytes] = deque()
        self._waiting = 0
        self._more: asyncio.Future[None] | None = None
        self._whole = False
        self._broke = (
            ""  # what is said of it. Kept as an error, it would keep all frames that it went through
        )
        self.begun: asyncio.Future[None] = connection.loop.create_future()
        self.status = 0
        self.headers = HeaderFields()

    @property
    def body(self) -> AsyncIterator[bytes]:
        return self

    @property
    def ended(self) -> bool:
        return self._whole and not self._chunks

    def close(self) -> None:
        if not self._whole:
            self._connection.cut()

    def check(self) -> None:
        """Raises `Broken` when there is no answer, or no more of it."""
        if self._broke:
            raise Broken(self._broke)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            self.check()
            if self._whole:
                raise StopAsyncIteration
            self._more = self._connection.loop.create_future()
            await self._more
        chunk = self._chunks.popleft() if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._waiting = 0
        if not self._whole:  # else the connection may serve another exchange by now
            self._connection.flow(0)
        return chunk

    # What httptools calls.

    def on_message_begin(self) -> None:
        if self._whole:
            raise ValueError("nobody asked for a second answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.begun.done():
            return  # a trailer
        self.headers[name.decode("latin-1")] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._connection.status()
        if self.status < 200 and self.status in _INTERIM:
            self.headers.clear()
        elif not self.begun.done():
            self.begun.set_result(None)
            if self.status < 200:
                self._whole = True
                self._connection.refuse()

    def on_body(self, body: bytes) -> None:
        self._connection.bare_bytes = 0
        self._chunks.append(body)
        self._waiting += len(body)
        self._connection.flow(self._waiting)
        self._wake()

    def on_message_complete(self) -> None:
        if self.status >= 200:
            self._whole = True
            self._connection.done()
            self._wake()

    def broke(self, cause: Exception | None) -> None:
        """The connection is gone before the answer was whole, unless its end is what ends the answer."""
        sized = "content-length" in self.headers or "transfer-encoding" in self.headers
        if self.begun.done() and cause is None and not sized:
            self._whole = True
        else:
            self._broke = f"the connection broke: {cause or 'closed by the server'}"
        if not self.begun.done():
            self.begun.set_result(None)
        self._wake()

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)
