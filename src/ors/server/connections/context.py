"""What all connections of one server share: the application, limits of arriving bodies, the date."""

import asyncio
from collections.abc import Callable, Coroutine
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Union

from ors.errors import ORSError, ResponseError, Unavailable
from ors.limits import ARRIVING_BYTES, Limits
from ors.server.http.answers import STREAM, Answer
from ors.server.http.requests import Request
from ors.server.http.streams import Outcome

if TYPE_CHECKING:
    from ors.server.connections.connection import Connection
    from ors.server.connections.link import LinkServer

KEEP_ALIVE_SECONDS = 75.0
"""Longer than our clients keep a connection, so that none is closed as a request arrives."""
REQUEST_SECONDS = 30.0
"""How long a request that has begun, or a client that reads, may make no progress."""
LAST_READ_SECONDS = 5.0
"""How long a refused client may still send: closing while it sends would lose the answer."""
ONE_WRITE_BYTES = 64 * 1024
"""Up to this size, joining is cheaper than writing twice."""
CACHED_HEADS = 1024
BODY_SECONDS = 30.0
"""Time for any body ..."""
LEAST_BYTES_A_SECOND = 8 * 1024
"""... and one more second for this many bytes received, so that long bodies have time and drips do not."""

STATUS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class Responder(Protocol):
    """Answers the requests of connections."""

    limits: Limits
    tasks: set[asyncio.Task[None]]
    """Tasks that produce answers."""

    @property
    def accepts_sessions(self) -> bool:
        """Whether new sessions may be created here."""

    @property
    def id_prefix(self) -> str:
        """How the ids of its sessions begin; empty if it forwards requests to the sessions of others."""

    def admit(self, request: Request) -> int | Coroutine[Any, Any, int]:
        """Returns the longest body that a request may have, from its headers; maybe later.

        Raises:
            ORSError: its sender may not ask.
        """

    def take(self, request: Request) -> Outcome:
        """Returns the outcome of a client's request."""

    def refused(self, error: ORSError) -> Answer:
        """Returns the answer to a request that is refused."""


class Upgrade(NamedTuple):
    """Another protocol that a connection can switch to."""

    path: bytes
    """The path that a client requests it with."""
    take_over: Callable[[asyncio.Transport, "Open", dict[bytes, bytes], bytes], None]
    """Takes the transport, with the headers of that request and the bytes after it."""


Open = set[Union["Connection", "LinkServer"]]
"""The connections of a server that are open."""


class StreamHeads(dict[int, bytes]):
    """By the length of its body: first bytes of the answer to a call. Formatting them takes 0.1 µs."""

    def __init__(self, start: bytes = b"") -> None:
        self._start = start

    def __missing__(self, length: int) -> bytes:
        head = b"%bcontent-length: %d\r\n\r\n" % (self._start, length)
        if len(self) < CACHED_HEADS:
            self[length] = head
        return head


class ArrivingBodies:
    """Counts the bytes of incomplete bodies over all connections."""

    def __init__(self) -> None:
        self.bytes = 0

    def add(self, count: int) -> None:
        """Counts more bytes.

        Raises:
            Unavailable: the limit is exceeded; the bytes are counted all the same.
        """
        self.bytes += count
        if self.bytes > ARRIVING_BYTES:
            text = f"Incoming request bodies take over {ARRIVING_BYTES} bytes; try again later"
            raise Unavailable(text, retry_after=1, reason="limit")


def seconds_for(count: int) -> float:
    return BODY_SECONDS + count / LEAST_BYTES_A_SECOND


def too_slow() -> ResponseError:
    text = f"The request body arrives too slowly: the limit is {BODY_SECONDS:.0f} s plus 1 s per "
    return ResponseError(f"{text}{LEAST_BYTES_A_SECOND} bytes", status=408, reason="limit")


class ConnectionContext:
    def __init__(self, app: Responder, idle_seconds: float = KEEP_ALIVE_SECONDS) -> None:
        self.app = app
        self.idle_seconds = idle_seconds
        """How long a connection may be without a request."""
        self.arriving = ArrivingBodies()
        self._tasks = app.tasks
        self.date = b""
        self.stream_heads = StreamHeads()
        self.leaving = False
        """Whether clients must connect again for their next request."""
        self.upgrades: dict[bytes, Upgrade] = {}
        """By the value of the `Upgrade` header."""
        self.after_answer: Callable[[Connection], None] | None = None
        """Called after every answer, while the connection still has its stream."""

    def tick(self, now: float) -> None:
        """Sets the date of answers, once a second: formatting it costs as much as routing."""
        self.date = b"date: " + formatdate(now, usegmt=True).encode() + b"\r\n"
        self.stream_heads = StreamHeads(STATUS[200] + self.date + STREAM.wire)

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine in a task that the server waits for at its end."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
