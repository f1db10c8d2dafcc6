"""Clients' connections, on their way from one server of a machine to another."""

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

MOST = 100
"""Connections at once: the system allows 253."""
_ONE = struct.calcsize("i")
_PRIVATE: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
"""Says that what arrives is inherited by no child: a moment later, one may have been started already."""


class Receiver(Protocol):
    """A server of this machine that takes clients' connections over."""

    def give(self, *connections: int) -> bool:
        """Gives it the connections with these file descriptors, all or none; False if it takes none now."""


def inlet(link: str) -> str:
    """Where a server takes connections over, by the place of its link."""
    return f"{link}.in"


class Outlet:
    """Gives connections to one other server."""

    def __init__(self, link: str) -> None:
        self._place = inlet(link)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def give(self, *connections: int) -> bool:
        """Gives the connections with these file descriptors; False if the other server takes none now."""
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(connections)}i", *connections))
        try:
            self._socket.sendmsg([b"\0"], [rights], 0, self._place)
        except OSError:  # it has gone, or has many to take already
            return False
        return True

    def fileno(self) -> int:
        """The file descriptor of its socket."""
        return self._socket.fileno()

    def close(self) -> None:
        """Gives no more."""
        self._socket.close()


class Inlet:
    """Takes the connections that other servers give."""

    def __init__(self, link: str, take: Callable[[socket.socket], None]) -> None:
        self._place = inlet(link)
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self._place)
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._arrived)

    def _arrived(self) -> None:
        with suppress(BlockingIOError):
            while True:
                _, rights, _, _ = self._socket.recvmsg(1, socket.CMSG_SPACE(MOST * _ONE), _PRIVATE)
                for _, _, data in rights:
                    for (number,) in struct.iter_unpack("i", data[: len(data) // _ONE * _ONE]):
                        os.set_inheritable(number, False)
                        self._take(socket.socket(fileno=number))

    def fileno(self) -> int:
        """The file descriptor of its socket."""
        return self._socket.fileno()

    def close(self) -> None:
        """Takes no more. A client whose connection was on the way connects anew."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        with suppress(FileNotFoundError):
            os.unlink(self._place)
