"""Real HTTP by aiohttp: imported with the first client, not with the package, for it takes the longest."""

import asyncio
import io
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from ors.client._options import Options
from ors.client._transport import Broken, NotSent, Response

__all__ = ["HTTPTransport"]

LARGE_BODY_BYTES = 2**20


class HTTPTransport:
    """Real HTTP: one pool of kept-alive connections to the server at `base_url`."""

    def __init__(self, base_url: str, options: Options) -> None:
        self._base = base_url.rstrip("/")
        parts = urlsplit(self._base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"base_url must be like http://host:port, not {base_url!r}")
        self._proxy = _proxy(parts.scheme, parts.hostname)
        self._options = options
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """The answer, as soon as its status and headers are here."""
        # aiohttp warns about larger bodies given as bytes.
        data = io.BytesIO(body) if body is not None and len(body) > LARGE_BODY_BYTES else body
        try:
            return _HTTPResponse(
                await self._opened().request(
                    method,
                    self._base + path,
                    headers=headers,
                    data=data,
                    allow_redirects=False,
                    proxy=self._proxy,
                )
            )
        except (
            aiohttp.ClientConnectorError,
            aiohttp.ConnectionTimeoutError,
            aiohttp.ClientHttpProxyError,
        ) as error:
            raise NotSent(f"{self._base} cannot be reached: {error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Broken(f"{self._base} did not answer: {_text(error)}") from error

    async def close(self) -> None:
        """Gives up all connections."""
        session, self._session = self._session, None
        if session is not None and self._loop is asyncio.get_running_loop():
            await session.close()

    def __del__(self) -> None:
        # ors-sdk 0.1.0 has no way to close an async client, so nobody is warned for not closing ours.
        session = getattr(self, "_session", None)
        if session is not None and session.connector is not None:
            connector = session.connector
            session.detach()
            connector.close()

    def _opened(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self.__del__()  # of a loop that has ended, when a script calls asyncio.run() more than once
            self._session, self._loop = self._open(), loop
        return self._session

    def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=self._options.keepalive_seconds, socket_factory=_kept_alive_socket
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._options.connect_seconds),
            cookie_jar=aiohttp.CookieJar(unsafe=True),
        )


class _HTTPResponse:
    __slots__ = ("_response", "body", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers
        self.body: AsyncIterator[bytes] = _Body(response.content)

    @property
    def ended(self) -> bool:
        return self._response.content.at_eof()

    def close(self) -> None:
        self._response.close()


class _Body:
    __slots__ = ("_content",)

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise Broken(f"the answer broke off: {_text(error)}") from error
        if not chunk:
            raise StopAsyncIteration
        return chunk


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _proxy(scheme: str, host: str) -> str | None:
    # Asked once: per request it costs more than the rest of the request (aiohttp's trust_env: 186 µs).
    return None if proxy_bypass(host) else getproxies().get(scheme)


def _kept_alive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    # A peer that vanished without a word is noticed by TCP itself, also while nothing is streamed.
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
