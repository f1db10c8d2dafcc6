"""What a supervisor and its workers share: inherited sockets, and messages as JSON lines."""

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from ors.server.process.system import Lifeline

VARIABLE = "ORS_SERVE_WORKER_CONFIG"
"""The environment variable that holds the configuration of a worker process."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Start-up data of a worker, from its supervisor. All descriptors are inherited."""

    slot: int
    incarnation: int
    control: int
    """The file descriptor for messages to and from the supervisor."""
    listeners: Sequence[int]
    """The file descriptors of the sockets that share the port, one per slot."""
    link: int
    """The file descriptor of the socket for links from other workers."""

    @classmethod
    def read(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def text(self) -> str:
        return json.dumps(asdict(self))

    def take(self) -> Lifeline:
        """Makes what a worker inherits its own, before environment code can pass it to child processes."""
        os.environ.pop(VARIABLE, None)
        for number in self.descriptors:
            os.set_inheritable(number, False)
        return Lifeline(self.control)

    @property
    def descriptors(self) -> Sequence[int]:
        return [*self.listeners, self.link, self.control]


@dataclass(frozen=True, slots=True)
class WorkerUpdate:
    """Sent by the supervisor to every worker after each change."""

    addresses: Sequence[str] = ()
    """The addresses of all workers."""
    empty_slots: Sequence[int] = ()
    """Slots without a worker: the others accept their clients meanwhile."""
    retire: bool = False
    """Whether to take no new sessions and end with the last one."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """Sent by a worker to its supervisor once it is up."""

    url: str
    environments: Sequence[str] = ()


class JSONLines:
    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]


class Channel:
    """Sends messages without blocking.

    Each message describes the whole state, so a new one replaces one that could not be sent yet.
    """

    def __init__(self, control: socket.socket) -> None:
        control.setblocking(False)
        self._control = control
        self._line = b""  # the rest of a line that was sent in part
        self._next = b""  # the line after it

    def send(self, message: WorkerUpdate | WorkerReport) -> None:
        """Sends a message, now or when there is room; without a reader it is lost."""
        self._next = json.dumps(asdict(message)).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
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
        return bool(self._line or self._next)


def memory(pid: int) -> int | None:
    """Returns the resident memory of a process in bytes; None where the system does not tell."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):  # another system; or it has just ended
        return None
