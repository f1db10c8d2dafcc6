"""The connections of one server, and the sockets on which they are accepted."""

import asyncio
import errno
import socket
import ssl
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

from ors.server.connections.connection import Connection
from ors.server.connections.connection_limit import OverflowListener
from ors.server.connections.listener import REQUEST_SECONDS, Listener, Open, Responder, Upgraded

AT_ONCE = 32
"""Connections accepted in one turn of the event loop."""
PAUSE_SECONDS = 0.5
"""Wait before the next try, when the process has no file descriptors left."""
BACKLOG = 2048
LAST_WRITES_SECONDS = 5
"""How long the last answers may take at the end."""
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

Opening = Callable[[socket.socket, ssl.SSLContext | None, bool], Coroutine[Any, Any, None]]


class Clients:
    """Accepts clients, refuses those over the connection limit, and knows all that are connected."""

    def __init__(self, app: Responder, connection_type: type[Connection] = Connection) -> None:
        self._app = app
        self._type = connection_type
        self.open: Open = set()
        self.listener = Listener(app)
        self._overflow = OverflowListener(app, lambda: len(self.open))
        self.servers: list[Acceptor | asyncio.Server] = []
        self._date()

    # ── Accepting ────────────────────────────────────────────────────────────────────────────────

    async def listen(
        self, listening: socket.socket, tls: ssl.SSLContext | None = None
    ) -> "Acceptor | asyncio.Server":
        """Accepts clients on a socket until it is closed. Unix sockets have no limit of connections."""
        listening.listen(BACKLOG)
        server: Acceptor | asyncio.Server
        if listening.family == getattr(socket, "AF_UNIX", None) or sys.platform == "win32":
            # On Windows, only the event loop can accept.
            loop = asyncio.get_running_loop()
            server = await loop.create_server(self._connection, sock=listening, backlog=BACKLOG, ssl=tls)
        else:
            start_task = self.listener.start_task
            server = Acceptor(listening, self._overflow, self._accepted, start_task, tls)
        self.servers.append(server)
        return server

    async def serve(self, client: socket.socket) -> None:
        """Serves a connection that another server has accepted."""
        await asyncio.get_running_loop().connect_accepted_socket(self._connection, client)

    def _connection(self) -> Connection:
        return self._type(self.listener, self.open)

    async def _accepted(self, client: socket.socket, tls: ssl.SSLContext | None, fits: bool) -> None:
        listener = self.listener if fits else self._overflow
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: self._type(listener, self.open),
            client,
            ssl=tls,
            ssl_handshake_timeout=REQUEST_SECONDS if tls is not None else None,
        )

    # ── Connected ────────────────────────────────────────────────────────────────────────────────

    def __iter__(self) -> Iterator[Connection]:
        """Iterates over the HTTP connections."""
        return iter([each for each in list(self.open) if isinstance(each, Connection)])

    def links(self) -> list[Upgraded]:
        """Returns the connections of other servers."""
        return [each for each in list(self.open) if isinstance(each, Upgraded)]

    def sweep(self, now: float) -> None:
        """Closes idle connections, and sets the date of answers. Called once a second."""
        self._date()
        for connection in list(self.open):
            connection.sweep(now)

    def _date(self) -> None:
        self.listener.tick(time.time())
        self._overflow.tick(time.time())

    def say_goodbye(self) -> None:
        """Asks every client, with its next answer, to reconnect."""
        self.listener.leaving = True

    # ── The end ──────────────────────────────────────────────────────────────────────────────────

    async def close(self, is_forced: Callable[[], bool]) -> None:
        """Accepts no more clients, and closes each connection when its current answer is written."""
        for server in self.servers:
            server.close()
        for connection in list(self.open):
            connection.shutdown()
        try:
            async with asyncio.timeout(LAST_WRITES_SECONDS):
                # Polls: there is no event for it.
                while (self.open or self._app.tasks) and not is_forced():  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        except TimeoutError:
            for task in self._app.tasks:
                task.cancel()

    def listening(self) -> Iterator[int]:
        """Yields the file descriptors on which clients are accepted."""
        for server in self.servers:
            yield from (each.fileno() for each in server.sockets)

    def descriptors(self) -> Iterator[int]:
        """Yields the file descriptors of all sockets."""
        yield from self.listening()
        yield from (number for each in list(self.open) if (number := each.fileno()) is not None)


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

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self.sockets[0])
            self.sockets[0].close()

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
