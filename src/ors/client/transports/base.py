"""The interface of transports, their errors, and what they share."""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from typing import NoReturn, Protocol, Self
from urllib.parse import SplitResult, unquote, urlsplit

from ors.errors import TransportError

REST_SECONDS = 0.05


class NotSent(TransportError):
    """No connection was made: the server has not received the request."""


class Broken(TransportError):
    """The connection broke: the server may have received the request."""


class Response(Protocol):
    """A response of a server. `body` raises `Broken` if it is incomplete."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; their names are not case-sensitive."""

    @property
    def body(self) -> AsyncIterator[bytes]:
        """The body, in chunks as they arrive."""

    @property
    def ended(self) -> bool:
        """Whether the whole body has been read."""

    def close(self) -> None:
        """Ends the exchange; an unread rest of the body is dropped."""


class Transport(Protocol):
    """Sends requests to one server."""

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Sends a request; returns when the status and headers of the response have arrived.

        Raises:
            NotSent, Broken: there is no response.
        """

    async def close(self) -> None:
        """Closes all connections."""


async def read_rest(response: Response) -> None:
    """Reads the last bytes of a body, so that its connection can be used again."""
    try:
        async with asyncio.timeout(REST_SECONDS):
            async for _ in response.body:
                pass
    except (TimeoutError, TransportError):
        response.close()


class Incoming:
    """A response while it arrives: its transport adds chunks, its caller reads them."""

    # Class attributes, since most answers over a link set none of them.
    status = 0
    broken = ""
    """Why it is incomplete: a message, since an exception would keep the frames of its traceback."""
    cause: Exception | None = None
    _complete = False
    _more: asyncio.Future[None] | None = None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._chunks: list[bytes] = []
        self.begun: asyncio.Future[bytes | None] = loop.create_future()
        """Done when the status and headers are there, or will never be."""

    async def arrived(self) -> Self:
        """Waits for the status and headers. Raises Broken: there are none."""
        try:
            await self.begun
        except asyncio.CancelledError:
            self.close()
            raise
        if self.broken:
            raise Broken(self.broken) from self.cause
        return self

    @property
    def body(self) -> AsyncIterator[bytes]:
        return self

    @property
    def ended(self) -> bool:
        return self._complete and not self._chunks

    def close(self) -> None:
        """Ends the exchange."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            if self.broken:
                raise Broken(self.broken) from self.cause
            if self._complete:
                raise StopAsyncIteration
            self._more = asyncio.get_running_loop().create_future()
            await self._more
        chunk = b"".join(self._chunks)
        self._chunks = []
        if not self._complete:
            self._taken(len(chunk))
        return chunk

    def _taken(self, size: int) -> None:
        """Called when the caller has read chunks, and more may follow."""

    # Called by the transport.

    def begin(self) -> None:
        if not self.begun.done():
            self.begun.set_result(None)

    def add(self, chunk: bytes = b"", *, last: bool = False) -> None:
        if chunk:
            self._chunks.append(chunk)
        self._complete = self._complete or last
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    def lose(self, why: str) -> None:
        self.broken = why
        self.begin()
        self.add()


class HeaderFields(dict[str, str]):
    """Header fields by name, in any case; the last of several with one name wins."""

    def __setitem__(self, name: str, value: str) -> None:
        super().__setitem__(name.lower(), value)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def get(self, name: str, default: str = "") -> str:  # type: ignore[override]
        return super().get(name.lower(), default)


def port_of(url: SplitResult) -> int:
    """The port of a URL, or the default of its scheme."""
    return url.port or (443 if url.scheme == "https" else 80)


def authorization(header: str, url: SplitResult) -> list[str]:
    """The header line for the login in a URL, if it has one."""
    login = url.netloc.rpartition("@")[0]
    return [f"{header}: Basic {base64.b64encode(unquote(login).encode()).decode()}"] if login else []


def proxy_of(url: SplitResult) -> SplitResult | None:
    """The proxy for a server, from environment variables or system settings; None if there is none.

    Raises:
        ValueError: it is not an HTTP proxy.
    """
    from urllib.request import getproxies, proxy_bypass  # slow to import

    names = (url.hostname or "", url.netloc.rpartition("@")[2])  # no_proxy may name a host, or host:port
    proxy = None if any(map(proxy_bypass, names)) else getproxies().get(url.scheme)
    if not proxy:
        return None
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"a proxy must be like http://host:port, not {parts.scheme}://{parts.hostname or ''}"
        )
    return parts


class Bound:
    """An object with connections, which can neither be pickled nor copied."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} has open connections, and cannot be pickled or copied:"
            " make a client in each process, and continue a session there with attach(sid)"
        )


def running_loop() -> asyncio.AbstractEventLoop:
    """The running event loop, or a RuntimeError that says what to do without one, as under trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        why = "the async client needs a running asyncio event loop: without one, as under trio,"
        raise RuntimeError(f"{why} use the sync client ors.client.ORS in a thread") from None
