"""How bytes get to a server and back: the seam that every way of carrying them fits."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from ors.errors import TransportError

__all__ = ["Broken", "NotSent", "Response", "Transport", "drain"]

DRAIN_SECONDS = 0.05


class NotSent(TransportError):
    """No connection was made: the server has seen nothing of the request."""


class Broken(TransportError):
    """The connection broke: the server may have seen the request."""


class Response(Protocol):
    """What a server answers. `body` raises `Broken` when it ends too early."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; their names are not case-sensitive."""

    @property
    def body(self) -> AsyncIterator[bytes]:
        """What follows, as it arrives."""

    @property
    def ended(self) -> bool:
        """Whether all of the body has been read."""

    def close(self) -> None:
        """Ends the exchange: the rest of the body, if any, is not wanted."""


class Transport(Protocol):
    """Carries requests to one server."""

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """The answer, as soon as its status and headers are here.

        Raises:
            NotSent, Broken: there is none.
        """

    async def close(self) -> None:
        """Gives up all connections."""


async def drain(response: Response) -> None:
    """Reads what little is left of a body, so that its connection can be used again."""
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in response.body:
                pass
    except (TimeoutError, TransportError):
        response.close()
