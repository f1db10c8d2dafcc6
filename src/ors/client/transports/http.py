"""HTTP/1.1 over a pool of kept-alive connections, or through a proxy: a fifth of the CPU time of aiohttp."""

import asyncio
import errno
import socket
import ssl
from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import SplitResult

from ors.client.transports.base import NotSent, Response, authorization, port_of, running_loop
from ors.client.transports.connection import HTTPConnection
from ors.client.transports.options import Options
from ors.errors import BadRequest

MAX_COOKIES = 64
CONNECTS_AT_ONCE = 256
RESOLVED_SECONDS = 10.0
BUFFER_BYTES = 2**18
TUNNEL_HEAD_BYTES = 2**16
Address = tuple[int, Any]
T = TypeVar("T")


class DirectTransport:
    """Sends requests to the server at `base_url` over one pool of connections."""

    def __init__(self, base_url: SplitResult, options: Options) -> None:
        self._next_hop = base_url
        self._prefix = base_url.path.rstrip("/")
        self._authority = base_url.netloc.rpartition("@")[2]
        self._where = f"{base_url.scheme}://{self._authority}"
        self._through = ""
        self._fixed = [f"Host: {self._authority}", *authorization("Authorization", base_url)]
        self._options = options
        self._cookies: OrderedDict[str, str] = OrderedDict()
        self._addresses: list[Address] = []
        self._resolved_until = 0.0
        self._last_good: Address | None = None
        self._idle: dict[HTTPConnection, None] = {}
        self._open: set[HTTPConnection] = set()
        self._connects = asyncio.Semaphore(CONNECTS_AT_ONCE)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self.buffer = memoryview(bytearray(BUFFER_BYTES))
        """For received bytes. A new one for each reception, as asyncio makes it, costs three system calls."""

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Sends a request; returns when the status and headers of the response have arrived."""
        loop = running_loop()
        if self._loop is not loop:
            self._move_to(loop)
        request = self.head(method, path, headers, body) + (body or b"")
        connection = self._take(loop.time())
        if connection is None:
            connection = await self.connected(self._open_connection(loop))
        try:
            exchange = await connection.exchange(request)
        except BaseException:
            connection.cut()
            raise
        if "set-cookie" in exchange.headers:
            self._remember(exchange.headers["set-cookie"])
        return exchange

    async def close(self) -> None:
        """Closes all connections. A request that is still sent, as to delete a session, closes its own."""
        self._closed = True
        self._idle.clear()
        for connection in tuple(self._open):
            connection.cut()

    def adopt(self, connection: HTTPConnection) -> None:
        self._open.add(connection)

    def release(self, connection: HTTPConnection) -> None:
        """Takes back a connection after a complete response, for the next request."""
        if self._closed:
            connection.cut()
            return
        connection.idle_since = connection.loop.time()
        self._idle[connection] = None

    def forget(self, connection: HTTPConnection) -> None:
        self._idle.pop(connection, None)
        self._open.discard(connection)

    def _take(self, now: float) -> HTTPConnection | None:
        while self._idle:
            connection, _ = self._idle.popitem()  # the most recent one, so that unneeded ones time out
            if now - connection.idle_since < self._options.keepalive_seconds and not connection.closing:
                return connection
            connection.cut()
        return None

    async def connected(self, opening: Coroutine[Any, Any, T]) -> T:
        """Waits for a connection that is opened. Raises NotSent: the server was not reached."""
        try:
            async with self._connects, asyncio.timeout(self._options.connect_seconds):
                return await opening
        except (OSError, TimeoutError) as error:
            why = str(error) or f"no connection within {self._options.connect_seconds:g} s"
            why = "connection refused" if error.errno == errno.ECONNREFUSED else why
            raise NotSent(f"{self._where} cannot be reached{self._through}: {why}") from error

    async def _open_connection(self, loop: asyncio.AbstractEventLoop) -> HTTPConnection:
        connection = HTTPConnection(self, loop)
        await self.with_protocol(loop, connection)
        return connection

    async def with_protocol(
        self, loop: asyncio.AbstractEventLoop, protocol: asyncio.BaseProtocol
    ) -> asyncio.Transport:
        tls = self._next_hop.scheme == "https"
        made, _ = await loop.create_connection(
            lambda: protocol,
            sock=await self._connected_socket(loop),
            ssl=self._tls if tls else None,
            server_hostname=self._next_hop.hostname if tls else None,
        )
        return made

    async def _connected_socket(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        addresses = await self._resolved(loop)
        errors: list[Exception] = []
        for family, address in addresses:
            made = socket.socket(family, socket.SOCK_STREAM)
            made.setblocking(False)
            # As asyncio does for its sockets. Else a small write waits up to 40 ms for the last one's ACK.
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                # An address that does not answer must leave time for one that does.
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
        # Cached for a few seconds. The address of the last connection comes first.
        if loop.time() > self._resolved_until:
            host, port = self._next_hop.hostname or "", port_of(self._next_hop)
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            self._addresses = [(family, address) for family, _, _, _, address in found]
            self._resolved_until = loop.time() + RESOLVED_SECONDS
        return sorted(self._addresses, key=lambda address: address != self._last_good)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        # A script may call asyncio.run() more than once, and connections end with their loop.
        self._loop = loop
        self._closed = False
        self._resolved_until = 0.0
        self._idle.clear()
        self._open.clear()
        self._connects = asyncio.Semaphore(CONNECTS_AT_ONCE)

    def head(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", *self._fixed]
        for name, value in headers.items():
            lines.append(f"{name}: {value}")
        if self._cookies:
            lines.append("Cookie: " + "; ".join(f"{name}={value}" for name, value in self._cookies.items()))
        if body is not None or method == "POST":
            lines.append(f"Content-Length: {len(body or b'')}")
        head = "\r\n".join(lines)
        if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
            raise BadRequest("a path, a header or an API key must not contain a line break")
        try:
            return head.encode("latin-1") + b"\r\n\r\n"
        except UnicodeEncodeError:
            raise BadRequest("a path, a header or an API key must consist of Latin-1 characters") from None

    def _remember(self, cookie: str) -> None:
        # Load balancers use cookies to keep a client on one server.
        name, equals, value = cookie.partition(";")[0].partition("=")
        if equals:
            self._cookies[name.strip()] = value.strip()
            if len(self._cookies) > MAX_COOKIES:
                self._cookies.popitem(last=False)


class ProxiedTransport(DirectTransport):
    """Sends requests to the server at `base_url` through `proxy`; to an https server by a tunnel."""

    def __init__(self, base_url: SplitResult, proxy: SplitResult, options: Options) -> None:
        super().__init__(base_url, options)
        self._next_hop = proxy
        self._server = base_url
        login = authorization("Proxy-Authorization", proxy)
        host = f"[{base_url.hostname}]" if ":" in (base_url.hostname or "") else base_url.hostname
        target = f"{host}:{port_of(base_url)}"
        self._connect_request = "\r\n".join([f"CONNECT {target} HTTP/1.1", f"Host: {target}", *login, "", ""])
        if base_url.scheme == "http":
            self._prefix = f"{self._where}{self._prefix}"
            self._fixed += login
        self._through = f" through the proxy {proxy.hostname}:{port_of(proxy)}"

    async def _open_connection(self, loop: asyncio.AbstractEventLoop) -> HTTPConnection:
        if self._server.scheme == "http":
            return await super()._open_connection(loop)
        reader = asyncio.StreamReader(TUNNEL_HEAD_BYTES, loop)
        plain = await self.with_protocol(loop, asyncio.StreamReaderProtocol(reader, loop=loop))
        try:
            plain.write(self._connect_request.encode("latin-1"))
            await _answered(reader)
            connection = HTTPConnection(self, loop)
            secured = await loop.start_tls(
                plain, connection, self._tls, server_hostname=self._server.hostname
            )
        except BaseException:
            plain.abort()
            raise
        if secured is None:
            raise ConnectionError("the proxy closed the tunnel during the TLS handshake")
        connection.connection_made(secured)  # start_tls does not call it
        return connection


async def _answered(reader: asyncio.StreamReader) -> None:
    """Reads the proxy's answer to CONNECT. Raises OSError: it refused."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        raise ConnectionError("the proxy hung up without an answer") from None
    except asyncio.LimitOverrunError:
        head = await reader.read(TUNNEL_HEAD_BYTES)
    status = head.partition(b"\r\n")[0].decode("latin-1")
    if not status.startswith("HTTP/1.") or status[8:10] != " 2":
        raise ConnectionRefusedError(f"the proxy answered {status[9:109] or 'nothing'}")
