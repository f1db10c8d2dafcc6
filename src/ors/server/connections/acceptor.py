"""A socket on which clients connect, and what becomes of those for whom there is no room."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from ors.server.connections.connection_limit import OverflowListener

AT_ONCE = 32
"""Connections that are accepted before others get their turn."""
PAUSE_SECONDS = 0.5
"""When no file can be opened at all, it is tried again after so long."""
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

Opening = Callable[[socket.socket, ssl.SSLContext | None, bool], Coroutine[Any, Any, None]]


class Acceptor:
    """Accepts one by one, unlike event loops, which open all that wait before anyone can refuse one."""

    def __init__(
        self,
        listening: socket.socket,
        lobby: OverflowListener,
        open_: Opening,
        beside: Callable[[Coroutine[Any, Any, None]], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        listening.setblocking(False)
        self.sockets = (listening,)
        self._overflow = lobby
        self._open = open_
        self._beside = beside
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._resume()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop on which it accepts."""
        return self._loop

    def close(self) -> None:
        """Accepts no more."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self.sockets[0])
            self.sockets[0].close()

    async def wait_closed(self) -> None:
        """Returns: it is closed at once."""

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self.sockets[0], self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            if self._closed:
                return
            try:
                client, _ = self.sockets[0].accept()
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pause()
                return
            self._take(client)

    def _take(self, client: socket.socket) -> None:
        client.setblocking(False)
        fits = self._overflow.takes(client.fileno())
        if fits or self._overflow.enters():
            self._overflow.opening += 1
            self._beside(self._opened(client, fits))
            return
        with client, suppress(OSError):
            if self._tls is None:
                client.send(self._overflow.refusal())
                client.shutdown(socket.SHUT_WR)

    async def _opened(self, client: socket.socket, fits: bool) -> None:
        try:
            await self._open(client, self._tls, fits)
        except OSError:  # it has gone again, or speaks no TLS
            client.close()
        finally:
            self._overflow.opening -= 1

    def _pause(self) -> None:
        self._overflow.note()
        self._loop.remove_reader(self.sockets[0])
        self._loop.call_later(PAUSE_SECONDS, self._resume)
