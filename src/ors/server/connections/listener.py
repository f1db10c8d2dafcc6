"""What all connections of one server share: who answers them, their limits, the date."""

import asyncio
from collections.abc import Callable, Coroutine
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from ors.errors import ORSError
from ors.limits import Limits
from ors.server.connections.body_limits import ArrivingBodies
from ors.server.episodes.threads import Threads
from ors.server.http.answers import STREAM, Answer
from ors.server.http.requests import Request
from ors.server.http.streams import Outcome

if TYPE_CHECKING:
    from uvicorn.server import ServerState

    from ors.server.connections.connection import Connection

KEEP_ALIVE_SECONDS = 75.0
"""Longer than any client of ours keeps a connection, so that none is closed as a request arrives."""
REQUEST_SECONDS = 30.0
"""A request that has begun, or a reader that has stopped, may make no progress for this long."""
LAST_READ_SECONDS = 5.0
"""Whoever is refused may still send for this long: a connection that closes meanwhile loses the answer."""
ONE_WRITE_BYTES = 64 * 1024
"""Up to here joining is cheaper than writing twice."""

STATUS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class Answering(Protocol):
    """What answers the requests of connections."""

    limits: Limits
    tasks: set[asyncio.Task[None]]
    """Those that work on answers."""

    def admit(self, request: Request) -> int | Coroutine[Any, Any, int]:
        """How long the body may be of a request whose headers alone are there, or what finds that out.

        Raises:
            ORSError: whoever sends it may not ask.
        """

    def take(self, request: Request) -> Outcome:
        """What becomes of a client's request."""

    def refused(self, error: ORSError) -> Answer:
        """What is answered to a request that is turned away."""


class Application(Answering, Protocol):
    """What a process serves: a server, or a router alone."""

    @property
    def threads(self) -> Threads:
        """Where code runs that is not async."""

    @property
    def ending_seconds(self) -> float:
        """The longest that an end takes."""

    @property
    def empty(self) -> bool:
        """Whether it has no session."""

    def start(self) -> None:
        """Begins its life, on the running loop."""

    def retire(self) -> None:
        """Takes no new sessions from now on."""

    def leave(self) -> None:
        """Has had its last session: what other servers still send goes elsewhere."""

    async def drain(self) -> None:
        """Takes nothing new, and lets what runs go on for a while."""

    async def close(self) -> None:
        """Ends everything."""


class Upgrade(NamedTuple):
    """Another protocol that a connection can change to."""

    path: bytes
    """Where it is asked for."""
    take_over: Callable[[asyncio.Transport, "ServerState", bytes], None]
    """Speaks it from now on; is given what has come of it already."""


@runtime_checkable
class Upgraded(Protocol):
    """A connection that has changed to another protocol."""

    def sweep(self, now: float) -> None:
        """Closes it if its other end does nothing for too long."""

    def goodbye(self) -> None:
        """Asks its other end to go elsewhere, and to close the connection when it has all its answers."""

    def shutdown(self) -> None:
        """uvicorn's word to end."""


class Listener:
    """What the connections to one server share."""

    patience = KEEP_ALIVE_SECONDS
    """How long a connection may be without a request."""

    def __init__(self, app: Answering) -> None:
        self.app = app
        self.arriving = ArrivingBodies(app.limits.arriving_bytes)
        self._tasks = app.tasks
        self.date = b""
        self.stream = b""
        """How the answer to a call begins, up to its length."""
        self.leaving = False
        """Whether clients are to connect anew for their next request."""
        self.upgrades: dict[bytes, Upgrade] = {}
        """By what the `Upgrade` header says."""
        self.after_answer: Callable[[Connection], None] | None = None
        """Is told of every answer that is written, while the connection still knows where it came from."""

    def tick(self, now: float) -> None:
        """Sets the date that answers carry, once a second: writing it costs as much as routing does."""
        self.date = b"date: " + formatdate(now, usegmt=True).encode() + b"\r\n"
        self.stream = STATUS[200] + self.date + STREAM.wire

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Does something beside."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def came(self) -> None:
        """A connection has come."""

    def left(self) -> None:
        """A connection has gone."""
