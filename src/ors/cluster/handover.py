"""Sockets that servers of one machine share: a port, and clients' connections that they hand over."""

import asyncio
import logging
import os
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

log = logging.getLogger("ors.cluster")

MAX_CONNECTIONS = 100
"""Connections per message: the system allows 253."""
RETRY_SECONDS = 0.1
"""How long connections wait when this process can open no more files."""
_FD_BYTES = struct.calcsize("i")
_CLOEXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
"""No child may inherit what arrives: one could be started before `set_inheritable` is called."""
_CAN_PEEK = sys.platform == "linux"  # elsewhere, a peek does not show file descriptors


def handover_path(link: str) -> str:
    """Returns the path of a server's handover socket, given that of its link socket."""
    return f"{link}.in"


class HandoverClient:
    def __init__(self, link: str) -> None:
        self._path = handover_path(link)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def give(self, *connections: int) -> bool:
        """Sends connections by their file descriptors, all or none; False if it takes none now."""
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(connections)}i", *connections))
        try:
            self._socket.sendmsg([b"\0"], [rights], 0, self._path)
        except OSError:  # the server has ended, or its queue is full
            return False
        return True

    def close(self) -> None:
        self._socket.close()


class HandoverServer:
    def __init__(self, link: str, take: Callable[[socket.socket], None]) -> None:
        self._path = handover_path(link)
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self._path)
        self._socket.setblocking(False)
        self._retry: asyncio.TimerHandle | None = None
        self._logged = False
        self._listen()

    def _listen(self) -> None:
        self._loop.add_reader(self._socket, self._arrived)

    def _arrived(self) -> None:
        with suppress(BlockingIOError):
            while self._has_room():
                for number in self._receive()[0]:
                    os.set_inheritable(number, False)
                    self._take(socket.socket(fileno=number))

    def _has_room(self) -> bool:
        """Looks at the next message first: what does not fit into the table of files would be lost."""
        if not _CAN_PEEK:
            return True
        numbers, complete = self._receive(socket.MSG_PEEK)
        for number in numbers:
            os.close(number)
        if not complete:
            if not self._logged:
                log.error("Connections from other servers are waiting: this process has too many open files")
            self._logged = True
            self._loop.remove_reader(self._socket)
            self._retry = self._loop.call_later(RETRY_SECONDS, self._listen)
        return complete

    def _receive(self, flags: int = 0) -> tuple[list[int], bool]:
        """Returns the file descriptors of the next message, and whether these are all."""
        space = socket.CMSG_SPACE(MAX_CONNECTIONS * _FD_BYTES)
        _, rights, received, _ = self._socket.recvmsg(1, space, _CLOEXEC | flags)
        data = b"".join(each[: len(each) // _FD_BYTES * _FD_BYTES] for _, _, each in rights)
        return [number for (number,) in struct.iter_unpack("i", data)], not received & socket.MSG_CTRUNC

    def close(self) -> None:
        """Closes the socket. A client whose connection was on the way has to connect again."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        with suppress(FileNotFoundError):
            os.unlink(self._path)


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
