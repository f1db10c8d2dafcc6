"""The interface of transports, and their errors."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

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
