"""What a supervisor and its workers say to each other: JSON lines over a pair of sockets."""

import json
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

VARIABLE = "ORS_SERVE_ASSIGNMENT"
"""The environment variable by which a worker process learns what it is."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one worker is told when it starts."""

    slot: int
    incarnation: int
    control: int
    """The file descriptor on which it hears from its supervisor."""
    listeners: Sequence[int]
    """The file descriptors of the sockets that share the port, one a slot."""
    link: int
    """That of the socket on which the other workers connect."""
    lock: int
    """That of the lock which shows that the folder of these sockets is in use."""

    @classmethod
    def read(cls, text: str) -> Self:
        """An assignment, from text."""
        return cls(**json.loads(text))

    def text(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    @property
    def descriptors(self) -> Sequence[int]:
        """All file descriptors that the worker is given."""
        return [*self.listeners, self.link, self.control, self.lock]


@dataclass(frozen=True, slots=True)
class Orders:
    """What the supervisor tells every worker whenever something has changed."""

    places: Sequence[str] = ()
    """Where all workers can be reached."""
    orphans: Sequence[int] = ()
    """Slots without a worker: whoever hears it takes their clients meanwhile."""
    retire: bool = False
    """Take no new sessions, and end when the last one has ended."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What a worker tells its supervisor, once it is up and then every second."""

    url: str
    environments: Sequence[str] = ()
    sessions: int = 0
    created: int = 0
    memory: int = 0


class JSONLines:
    """Lines of JSON out of bytes, however they arrive."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The objects that are complete now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]


class Channel:
    """Sends messages and never waits: whoever does not read finds the newest one when it reads again.

    A message tells how things stand, so a newer one takes the place of one that was not sent yet.
    """

    def __init__(self, control: socket.socket) -> None:
        control.setblocking(False)
        self._control = control
        self._line = b""  # what is left of a line that has begun
        self._next = b""  # the line after it

    def send(self, message: Orders | WorkerReport) -> None:
        """Sends a message, now or when there is room; one that nobody is there to read is lost."""
        self._next = json.dumps(asdict(message)).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Sends what waits, as far as there is room."""
        try:
            while self.waiting:
                if not self._line:
                    self._line, self._next = self._next, b""
                self._line = self._line[self._control.send(self._line) :]
        except BlockingIOError:
            return
        except OSError:
            self._line = self._next = b""

    @property
    def waiting(self) -> bool:
        """Whether something waits for room."""
        return bool(self._line or self._next)
