"""What workers inherit from their supervisor, and what it sees of them."""

import os
import socket
from collections.abc import Sequence

from ors.cluster.local.messages import VARIABLE, WorkerConfig
from ors.server.process.lifeline import Lifeline


def take(config: WorkerConfig) -> Lifeline:
    """Makes what a worker inherits its own, before environment code can pass it to child processes."""
    os.environ.pop(VARIABLE, None)
    for number in config.descriptors:
        os.set_inheritable(number, False)
    return Lifeline(config.control)


def memory(pid: int) -> int | None:
    """Returns the resident memory of a process in bytes; None where the system does not tell."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):  # another system; or it has just ended
        return None


def listeners(host: str, port: int, count: int, *, shared: bool = False) -> list[socket.socket]:
    """Returns sockets that share a port; the system spreads the clients over them.

    With `shared`, other processes of this user may share the port too.
    """
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    made: list[socket.socket] = []
    for _ in range(count):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setblocking(False)
        made.append(listener)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if made[1:] or shared:
            _share(made)
        listener.bind(made[0].getsockname() if made[1:] else address)
        if not made[1:]:
            # Bound without sharing first: a port that another server uses is refused, not shared with it.
            _share(made)
        listener.listen(2048)
    return made


def _share(sockets: Sequence[socket.socket]) -> None:
    for each in sockets:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
