"""HTTP/1.1 through a proxy."""

import asyncio
from urllib.parse import SplitResult

from ors.client.transports.base import authorization, port_of
from ors.client.transports.connection import HTTPConnection
from ors.client.transports.http import DirectTransport
from ors.client.transports.options import Options

MAX_HEAD_BYTES = 2**16


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
        tunnel = await self.with_protocol(loop, _Tunnel(loop))
        try:
            plain = await tunnel.opened(self._connect_request)
            connection = HTTPConnection(self, loop)
            secured = await loop.start_tls(
                plain, connection, self._tls_context(), server_hostname=self._server.hostname
            )
        except BaseException:
            tunnel.cut()
            raise
        if secured is None:
            raise ConnectionError("the proxy closed the tunnel during the TLS handshake")
        connection.connection_made(secured)  # start_tls does not call it
        return connection


class _Tunnel(asyncio.Protocol):
    """Reads a proxy's answer to CONNECT, up to the first byte of the server."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._head = b""
        self._answered: asyncio.Future[None] = loop.create_future()
        self._transport: asyncio.Transport | None = None

    async def opened(self, request: str) -> asyncio.Transport:
        """Requests the tunnel; returns its transport. Raises OSError: the proxy refused."""
        assert self._transport is not None
        self._transport.write(request.encode("latin-1"))
        await self._answered
        status = self._head.partition(b"\r\n")[0].decode("latin-1")
        if not status.startswith("HTTP/1.") or status[8:10] != " 2":
            raise ConnectionRefusedError(f"the proxy answered {status[9:109] or 'nothing'}")
        return self._transport

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's are not, by name

    def data_received(self, data: bytes) -> None:
        self._head += data
        ended = b"\r\n\r\n" in self._head or len(self._head) > MAX_HEAD_BYTES
        if ended and not self._answered.done():
            self._answered.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answered.done():
            self._answered.set_exception(ConnectionError(f"the proxy hung up: {exc or 'without an answer'}"))
