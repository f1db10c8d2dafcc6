"""The limit of connections, and the listener for those over it."""

import logging
import math
import sys
import time
from collections.abc import Callable

from ors import _protocol
from ors.errors import ORSError, Unavailable
from ors.limits import CONNECTIONS, Limits
from ors.server.connections.listener import LAST_READ_SECONDS, STATUS, Listener, Responder
from ors.server.http.answers import Answer
from ors.server.http.requests import Request
from ors.server.http.routing import LIVE, READY
from ors.server.http.streams import Outcome

log = logging.getLogger("ors.server")

LEAST_RESERVE, MOST_RESERVE = 128, 4096
"""File descriptors kept free for tools and the server itself: a quarter of all, within these bounds."""
MAX_OVERFLOW = 16
"""Connections over the limit that may still ask for the server's health."""
QUIET_SECONDS = 60.0
"""Refusals that are closer together than this are logged once."""
_HEALTH = frozenset({_protocol.HEALTH.path(), LIVE, READY})


class ConnectionLimit:
    """Bounds the number of connections by the configured limit and by free file descriptors."""

    def __init__(self, connections: int, files: int | None) -> None:
        self._connections = connections
        self._files = math.inf if files is None else files - _reserve(files)

    def has_room(self, connections: int, descriptor: int) -> bool:
        """Whether one more connection, with that file descriptor, is within the limits."""
        # The system gives the lowest free number: it tells how many files are open.
        return connections < self._connections and descriptor < self._files

    def __str__(self) -> str:
        return f"at most {self._connections} connections, and {self._files:.0f} open files (ulimit -n)"


class HealthOnly:
    """Answers connections over the limit: health checks, and a refusal of everything else."""

    def __init__(self, app: Responder) -> None:
        self._app = app
        self.limits: Limits = app.limits
        self.tasks = app.tasks

    def admit(self, request: Request) -> int:
        raise no_room()

    def take(self, request: Request) -> Outcome:
        """Answers health checks, since an orchestrator that gets no answer may end the server."""
        is_health = request.path.rstrip("/") in _HEALTH
        return self._app.take(request) if is_health else self._app.refused(no_room())

    def refused(self, error: ORSError) -> Answer:
        """Returns the answer to a request that is refused."""
        return self._app.refused(error)


class OverflowListener(Listener):
    """Listener for the few connections over the limit: one request each, and that soon."""

    idle_seconds = LAST_READ_SECONDS

    def __init__(self, app: Responder, count: Callable[[], int]) -> None:
        super().__init__(HealthOnly(app))
        self.leaving = True
        self._limit = ConnectionLimit(CONNECTIONS, _most_files())
        self._count = count  # of all connections
        self._connections = 0  # over the limit
        self._refused_at = -math.inf  # the last refusal
        self.opening = 0
        """Connections that are accepted and not yet counted, such as those in a TLS handshake."""

    def has_room(self, descriptor: int) -> bool:
        """Whether a connection with that file descriptor is within the limits."""
        return self._limit.has_room(self._count() + self.opening, descriptor)

    def takes(self) -> bool:
        self.log_refusals()
        return self._connections + self.opening < MAX_OVERFLOW

    def log_refusals(self) -> None:
        """Logs that connections are refused, once for many."""
        now, before = time.monotonic(), self._refused_at
        self._refused_at = now
        if now - before > QUIET_SECONDS:
            log.warning("connections are refused, since the limit is reached: %s", self._limit)

    def connected(self) -> None:
        self._connections += 1

    def disconnected(self) -> None:
        """Counts a connection that has ended."""
        self._connections -= 1

    def refusal(self) -> bytes:
        """Returns the bytes for a client that this listener does not take either."""
        answer = self.app.refused(no_room())
        length = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(answer.body)
        return b"".join((STATUS[answer.status], self.date, answer.headers.wire, length, answer.body))


def no_room() -> Unavailable:
    """The error for a connection over the limit."""
    text = "The server is at its connection limit. Try again later."
    return Unavailable(text, retry_after=1, reason="limit")


def _reserve(files: int) -> int:
    return min(max(files // 4, LEAST_RESERVE), MOST_RESERVE, files // 2)


def _most_files() -> int | None:
    """Returns the limit of open files, if there is one."""
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
