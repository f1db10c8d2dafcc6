"""The port of connections for which a server has no room."""

import logging
import math
import sys
import time
from collections.abc import Callable

from ors import _protocol
from ors.errors import ORSError, Unavailable
from ors.limits import Limits
from ors.server.admin.pages import HEALTH_PATHS
from ors.server.connections.listener import LAST_READ_SECONDS, STATUS, Answering, Listener
from ors.server.http.answers import Answer
from ors.server.http.requests import Request
from ors.server.http.streams import Outcome

log = logging.getLogger("ors.server")

LEAST_RESERVE, MOST_RESERVE = 128, 4096
"""File descriptors that are kept for tools and for the server itself: a quarter of all, within these."""
MOST_GUESTS = 16
QUIET_SECONDS = 60.0
"""Refusals are one event, and logged once, as long as they are not further apart."""
_HEALTH = frozenset({_protocol.HEALTH.path(), *HEALTH_PATHS})


class ConnectionLimit:
    """How many connections there may be: as many as the limit says, and as open files allow."""

    def __init__(self, connections: int | None, files: int | None) -> None:
        self._connections = math.inf if connections is None else connections
        self._files = math.inf if files is None else files - _reserve(files)

    def takes(self, count: int, number: int) -> bool:
        """Whether there is room for one more than so many, with that file descriptor."""
        # Of free numbers the system gives the lowest: so many files are open, whoever has opened them.
        return count < self._connections and number < self._files

    def __str__(self) -> str:
        most = "any number of" if self._connections == math.inf else f"{self._connections:.0f}"
        return (
            f"there may be {most} connections (--connections), and {self._files:.0f} open files (ulimit -n)"
        )


class OverflowApp:
    """Answers whoever is connected beyond the limit: that the server is well, or that there is no room."""

    def __init__(self, app: Answering) -> None:
        self._app = app
        self.limits: Limits = app.limits
        self.tasks = app.tasks

    def admit(self, request: Request) -> int:
        """Takes no body."""
        raise no_room()

    def take(self, request: Request) -> Outcome:
        """Tells how the server is, since whoever asks that may end it, and nothing else."""
        well = request.path.rstrip("/") in _HEALTH
        return self._app.take(request) if well else self._app.refused(no_room())

    def refused(self, error: ORSError) -> Answer:
        """What is answered to a request that is turned away."""
        return self._app.refused(error)


class OverflowListener(Listener):
    """Takes few connections, and each for one request that is to come soon."""

    patience = LAST_READ_SECONDS

    def __init__(self, app: Answering, count: Callable[[], int]) -> None:
        super().__init__(OverflowApp(app))
        self.leaving = True
        self._room = ConnectionLimit(app.limits.connections, _most_files())
        self._count = count  # of all connections
        self._guests = 0
        self._refused = -math.inf  # when somebody was refused last
        self.opening = 0
        """Connections that are not counted yet: an encrypted one takes its time."""

    def takes(self, number: int) -> bool:
        """Whether a connection with that file descriptor need not come here."""
        return self._room.takes(self._count() + self.opening, number)

    def enters(self) -> bool:
        """Whether one that has to come here may do so."""
        self.note()
        return self._guests + self.opening < MOST_GUESTS

    def note(self) -> None:
        """Logs that there is no room, once for all that are refused."""
        now, before = time.monotonic(), self._refused
        self._refused = now
        if now - before > QUIET_SECONDS:
            log.warning("connections are refused, since there is no room for more: %s", self._room)

    def came(self) -> None:
        """One has come."""
        self._guests += 1

    def left(self) -> None:
        """One has gone."""
        self._guests -= 1

    def refusal(self) -> bytes:
        """What is written to one that may not even come here."""
        answer = self.app.refused(no_room())
        length = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(answer.body)
        return b"".join((STATUS[answer.status], self.date, answer.headers.wire, length, answer.body))


def no_room() -> Unavailable:
    """What is said to one connection too many."""
    text = "The server has as many connections as it may; try again later"
    return Unavailable(text, retry_after=1, reason="limit")


def _reserve(files: int) -> int:
    return min(max(files // 4, LEAST_RESERVE), MOST_RESERVE, files // 2)


def _most_files() -> int | None:
    """How many files this process may have open, if that is bounded."""
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
