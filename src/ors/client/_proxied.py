"""HTTP through a proxy, by aiohttp, which knows them all."""

import asyncio
import io
from collections.abc import AsyncIterator, Mapping
from typing import Self
from urllib.parse import SplitResult

import aiohttp

from ors.client._options import Options
from ors.client._transport import Broken, NotSent, Response

__all__ = ["ProxiedTransport"]

LARGE_BODY_BYTES = 2**20


class ProxiedTransport:
    """Carries requests to the server at `base_url` by way of `proxy`."""

    def __init__(self, base_url: SplitResult, proxy: str, options: Options) -> None:
        self._base = base_url.geturl().rstrip("/")
        self._proxy = proxy
        self._options = options
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """The answer, as soon as its status and headers are here."""
        # aiohttp warns about larger bodies given as bytes.
        data = io.BytesIO(body) if body is not None and len(body) > LARGE_BODY_BYTES else body
        try:
            return _ProxiedResponse(
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

    def _opened(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            # Also when a script calls asyncio.run() more than once: connections end with their loop.
            self._session, self._loop = self._open(), loop
        return self._session

    def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=self._options.keepalive_seconds),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._options.connect_seconds),
            cookie_jar=aiohttp.CookieJar(unsafe=True),
        )


class _ProxiedResponse:
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
