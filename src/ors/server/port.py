"""What all connections of one server share: who answers them, their limits, the date."""

from email.utils import formatdate
from typing import Protocol

from ors._protocol import Limits
from ors.errors import ORSError
from ors.server.answers import Answer
from ors.server.app import Later, Outcome
from ors.server.pulse import Pulse
from ors.server.requests import Request

MAX_HEADER_BYTES = 64 * 1024
KEEP_ALIVE_SECONDS = 75.0
"""Longer than any client of ours keeps a connection, so that none is closed as a request arrives."""
REQUEST_SECONDS = 30.0
"""A request that has begun, or a reader that has stopped, may make no progress for this long."""
MOST_WISHES = 8
"""Requests behind each other that ask for another protocol; clients do so with one."""
ONE_WRITE_BYTES = 64 * 1024
"""Up to here joining is cheaper than writing twice."""

STATUS = {
    200: b"HTTP/1.1 200 OK\r\n",
    204: b"HTTP/1.1 204 No Content\r\n",
    308: b"HTTP/1.1 308 Permanent Redirect\r\n",
    400: b"HTTP/1.1 400 Bad Request\r\n",
    401: b"HTTP/1.1 401 Unauthorized\r\n",
    403: b"HTTP/1.1 403 Forbidden\r\n",
    404: b"HTTP/1.1 404 Not Found\r\n",
    405: b"HTTP/1.1 405 Method Not Allowed\r\n",
    410: b"HTTP/1.1 410 Gone\r\n",
    413: b"HTTP/1.1 413 Content Too Large\r\n",
    429: b"HTTP/1.1 429 Too Many Requests\r\n",
    431: b"HTTP/1.1 431 Request Header Fields Too Large\r\n",
    500: b"HTTP/1.1 500 Internal Server Error\r\n",
    503: b"HTTP/1.1 503 Service Unavailable\r\n",
}


class TooManyHeaders(ORSError):
    """431: nobody needs so many."""

    status = 431


class Front(Protocol):
    """What answers the requests of connections: a server, or a router alone."""

    limits: Limits
    opening: Pulse
    pings: Pulse

    def take(self, request: Request, forwarded: bool = False) -> Outcome:
        """The answer, or what will give it."""

    async def finish(self, request: Request, later: Later) -> Answer:
        """Waits for an answer."""

    def start(self) -> None:
        """Begins its life, on the running loop."""

    async def drain(self) -> None:
        """Takes nothing new, and lets what runs go on for a while."""

    async def close(self) -> None:
        """Ends everything."""


class Port:
    """What the connections to one server share."""

    def __init__(self, app: Front) -> None:
        self.app = app
        self.date = b""
        self.leaving = False
        """Whether clients are to connect anew for their next request."""

    def tick(self, now: float) -> None:
        """Sets the date that answers carry, once a second: writing it costs as much as routing does."""
        self.date = b"date: " + formatdate(now, usegmt=True).encode() + b"\r\n"
