"""Accepts clients on a listening socket, and refuses those over the connection limit."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from ors.server.connections.connection_limit import OverflowListener

AT_ONCE = 32
"""Connections accepted in one turn of the event loop."""
PAUSE_SECONDS = 0.5
"""Wait before the next try, when the process has no file descriptors left."""
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

Opening = Callable[[socket.socket, ssl.SSLContext | None, bool], Coroutine[Any, Any, None]]


class Acceptor:
    """Accepts clients one by one; event loops accept all that wait, before one can be refused."""

    def __init__(
        self,
        listening: socket.socket,
        overflow: OverflowListener,
        open_: Opening,
        start_task: Callable[[Coroutine[Any, Any, None]], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        listening.setblocking(False)
        self.sockets = (listening,)
        self._overflow = overflow
        self._open = open_
        self._start_task = start_task
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._resume()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self.sockets[0])
            self.sockets[0].close()

    async def wait_closed(self) -> None:
        """Returns at once: `close` does not wait."""

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
        fits = self._overflow.has_room(client.fileno())
        if fits or self._overflow.takes():
            self._overflow.opening += 1
            self._start_task(self._opened(client, fits))
            return
        with client, suppress(OSError):
            if self._tls is None:
                client.send(self._overflow.refusal())
                client.shutdown(socket.SHUT_WR)

    async def _opened(self, client: socket.socket, fits: bool) -> None:
        try:
            await self._open(client, self._tls, fits)
        except OSError:  # it has left again, or speaks no TLS
            client.close()
        finally:
            self._overflow.opening -= 1

    def _pause(self) -> None:
        self._overflow.log_refusals()
        self._loop.remove_reader(self.sockets[0])
        self._loop.call_later(PAUSE_SECONDS, self._resume)
