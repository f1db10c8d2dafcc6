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
        reader = asyncio.StreamReader(MAX_HEAD_BYTES, loop)
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
        head = await reader.read(MAX_HEAD_BYTES)
    status = head.partition(b"\r\n")[0].decode("latin-1")
    if not status.startswith("HTTP/1.") or status[8:10] != " 2":
        raise ConnectionRefusedError(f"the proxy answered {status[9:109] or 'nothing'}")
