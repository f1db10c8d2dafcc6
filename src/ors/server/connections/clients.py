"""The connections of one server, their limit, and the sockets on which they are accepted."""

import asyncio
import errno
import logging
import math
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from ors import _protocol
from ors.errors import ORSError, Unavailable
from ors.limits import CONNECTIONS, Limits
from ors.server.connections.connection import Connection
from ors.server.connections.context import (
    LAST_READ_SECONDS,
    REQUEST_SECONDS,
    STATUS,
    ConnectionContext,
    Open,
    Responder,
)
from ors.server.connections.link import LinkServer, upgrade
from ors.server.http.answers import Answer
from ors.server.http.requests import Request
from ors.server.http.routing import LIVE, READY
from ors.server.http.streams import Outcome

log = logging.getLogger("ors.server")

AT_ONCE = 32
"""Connections accepted in one turn of the event loop."""
PAUSE_SECONDS = 0.5
"""Wait before the next try, when the process has no file descriptors left."""
BACKLOG = 2048
LAST_WRITES_SECONDS = 5
"""How long the last answers may take at the end."""
LEAST_RESERVE, MOST_RESERVE = 128, 4096
"""File descriptors kept free for tools and the server itself: a quarter of all, within these bounds."""
MAX_OVERFLOW = 16
"""Connections over the limit that may still ask for the server's health."""
QUIET_SECONDS = 60.0
"""Refusals that are closer together than this are logged once."""
_HEALTH = frozenset({_protocol.HEALTH.path(), LIVE, READY})
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class ConnectionLimit:
    """Bounds the number of connections by the configured limit and by free file descriptors."""

    def __init__(self, connections: int, files: int | None) -> None:
        self._connections = connections
        self._files = math.inf if files is None else files - _reserve(files)
        self._refused_at = -math.inf  # the last refusal

    def has_room(self, connections: int, descriptor: int) -> bool:
        """Whether one more connection, with that file descriptor, is within the limits."""
        # The system gives the lowest free number: it tells how many files are open.
        return connections < self._connections and descriptor < self._files

    def log_refusals(self) -> None:
        """Logs that connections are refused, once for many."""
        now, before = time.monotonic(), self._refused_at
        self._refused_at = now
        if now - before > QUIET_SECONDS:
            log.warning(
                "refusing connections at the limit: at most %d connections, and %.0f open files (ulimit -n)",
                self._connections,
                self._files,
            )


class HealthOnly:
    """Answers connections over the limit: health checks, and a refusal of everything else."""

    accepts_sessions, id_prefix = False, ""

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
        return self._app.refused(error)


class Clients:
    """Accepts clients, refuses those over the connection limit, and knows all that are connected."""

    def __init__(self, app: Responder) -> None:
        self._app = app
        self.open: Open = set()
        self.context = ConnectionContext(app)
        if app.limits.multiplexed:
            self.context.upgrades.update([upgrade(app)])
        self.overflow = ConnectionContext(HealthOnly(app), LAST_READ_SECONDS)
        """For the few connections over the limit: one request each, and that soon."""
        self.overflow.leaving = True
        self._over: Open = set()  # the open ones of them
        self.limit = ConnectionLimit(CONNECTIONS, _most_files())
        self.opening = 0
        """Connections that are accepted and not yet open, such as those in a TLS handshake."""
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
            server = await loop.create_server(self._client, sock=listening, backlog=BACKLOG, ssl=tls)
        else:
            server = Acceptor(listening, self, tls)
        self.servers.append(server)
        return server

    async def serve(self, client: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(self._client, client)

    def _client(self) -> Connection:
        return Connection(self.context, self.open)

    def context_for(self, descriptor: int) -> ConnectionContext | None:
        """What a new connection with that file descriptor gets; None if there are too many."""
        if self.limit.has_room(len(self.open) + self.opening, descriptor):
            return self.context
        self.limit.log_refusals()
        return self.overflow if len(self._over) + self.opening < MAX_OVERFLOW else None

    def connection(self, context: ConnectionContext) -> Connection:
        return Connection(context, self._over if context is self.overflow else self.open)

    def refusal(self) -> bytes:
        """The bytes for a client that gets no connection."""
        answer = self._app.refused(no_room())
        length = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(answer.body)
        return b"".join((STATUS[answer.status], self.context.date, answer.headers.wire, length, answer.body))

    # ── Connected ────────────────────────────────────────────────────────────────────────────────

    def __iter__(self) -> Iterator[Connection]:
        return iter([each for each in list(self.open) if isinstance(each, Connection)])

    def links(self) -> list[LinkServer]:
        return [each for each in list(self.open) if isinstance(each, LinkServer)]

    def sweep(self, now: float) -> None:
        """Closes idle connections, and sets the date of answers. Called once a second."""
        self._date()
        for connection in [*self.open, *self._over]:
            connection.sweep(now)

    def _date(self) -> None:
        self.context.tick(time.time())
        self.overflow.tick(time.time())

    def say_goodbye(self) -> None:
        """Asks every client, with its next answer, to reconnect."""
        self.context.leaving = True

    # ── The end ──────────────────────────────────────────────────────────────────────────────────

    async def close(self, is_forced: Callable[[], bool]) -> None:
        """Accepts no more clients, and closes each connection when its current answer is written."""
        for server in self.servers:
            server.close()
        for connection in [*self.open, *self._over]:
            connection.shutdown()
        try:
            async with asyncio.timeout(LAST_WRITES_SECONDS):
                # Polls: there is no event for it.
                while (self.open or self._over or self._app.tasks) and not is_forced():  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        except TimeoutError:
            for task in self._app.tasks:
                task.cancel()

    def listening(self) -> Iterator[int]:
        for server in self.servers:
            yield from (each.fileno() for each in server.sockets)


class Acceptor:
    """Accepts clients one by one; event loops accept all that wait, before one can be refused."""

    def __init__(self, listening: socket.socket, clients: Clients, tls: ssl.SSLContext | None) -> None:
        listening.setblocking(False)
        self.sockets = (listening,)
        self._clients = clients
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
        context = self._clients.context_for(client.fileno())
        if context is not None:
            self._clients.opening += 1
            context.start_task(self._opened(client, context))
            return
        with client, suppress(OSError):
            if self._tls is None:
                client.send(self._clients.refusal())
                client.shutdown(socket.SHUT_WR)

    async def _opened(self, client: socket.socket, context: ConnectionContext) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._clients.connection(context),
                client,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else REQUEST_SECONDS,
            )
        except OSError:  # it has left again, or speaks no TLS
            client.close()
        finally:
            self._clients.opening -= 1

    def _pause(self) -> None:
        self._clients.limit.log_refusals()
        self._loop.remove_reader(self.sockets[0])
        self._loop.call_later(PAUSE_SECONDS, self._resume)


def no_room() -> Unavailable:
    text = "The server is at its connection limit. Try again later."
    return Unavailable(text, retry_after=1, reason="limit")


def _reserve(files: int) -> int:
    return min(max(files // 4, LEAST_RESERVE), MOST_RESERVE, files // 2)


def _most_files() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
