"""Runs a server or a router that has peers, on uvicorn."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

from ors.cluster.link.client import Forwarded
from ors.cluster.link.handover import HandoverTarget
from ors.cluster.movable_connection import MovableConnection, Streak
from ors.cluster.routing.router import is_feed
from ors.server.connections.connection import Connection
from ors.server.connections.listener import Application
from ors.server.http.streams import Later, Stream
from ors.server.process.runner import Runner

MOVE_AFTER = 16
"""After this many requests in a row for another server of the machine, a connection moves there.

Forwarding costs two wake-ups per call, moving costs one, once."""


class ClusterRunner(Runner):
    """Moves connections to the servers that they ask, and waits for forwarded answers at the end."""

    connection_type = MovableConnection

    def __init__(
        self,
        app: Application,
        host: str,
        port: int,
        on_start: Callable[[str], None] | None = None,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
    ) -> None:
        super().__init__(app, host, port, on_start, ssl_certfile, ssl_keyfile)
        self._listener.after_answer = self._answered
        self._successor: HandoverTarget | None = None  # takes over all clients' connections, between requests

    # ── More sockets ─────────────────────────────────────────────────────────────────────────────

    async def listen(self, listener: socket.socket, tls: ssl.SSLContext | None = None) -> asyncio.Server:
        """Serves on one more socket, until it is closed. Unix sockets have no limit of connections."""
        if listener.family == socket.AF_UNIX:
            loop = asyncio.get_running_loop()
            server = await loop.create_server(self._connected, sock=listener, backlog=self.config.backlog)
        else:
            listener.listen(self.config.backlog)
            server = self._acceptor(listener, tls)
        self.servers.append(server)
        return server

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine in the background; uvicorn waits for it at the end."""
        self._listener.start_task(work)

    async def go_on(self, client: socket.socket) -> None:
        """Serves a connection that another server has accepted."""
        await asyncio.get_running_loop().connect_accepted_socket(self._connected, client)

    def _connected(self) -> Connection:
        return MovableConnection(self._listener, self.config, self.server_state, {})

    # ── Moving connections ───────────────────────────────────────────────────────────────────────

    def _answered(self, connection: Connection) -> None:
        assert isinstance(connection, MovableConnection)
        stream, streak = connection.stream, connection.streak
        server = stream.handover if isinstance(stream, Forwarded) else None
        if server is None:
            streak = None
        else:
            streak = Streak(server, streak.length + 1 if streak and streak.server is server else 1)
        connection.streak = streak
        if self._successor is not None or (streak is not None and streak.length >= MOVE_AFTER):
            asyncio.get_running_loop().call_soon(self._move, connection)  # when the answer is written

    def _move(self, connection: MovableConnection) -> None:
        streak, spare = connection.streak, connection.spare
        server = self._successor or (streak.server if streak is not None else None)
        if server is not None and spare is not None:
            connection.streak = None
            if server.give(spare):
                connection.detach()

    def hand_over(self, successor: HandoverTarget, most: int) -> None:
        """Hands clients' connections to another server: idle ones now, the others after their answers."""
        self._successor = successor
        movable = [each for each in self.clients() if isinstance(each, MovableConnection)]
        spare = [(each, number) for each in movable if (number := each.spare) is not None]
        for start in range(0, len(spare), most):
            some = spare[start : start + most]
            if not successor.give(*(number for _, number in some)):
                break  # its queue is full
            for connection, _ in some:
                connection.detach()

    # ── The end ──────────────────────────────────────────────────────────────────────────────────

    @property
    def needed(self) -> bool:
        """Whether it has sessions, or clients that wait for forwarded answers."""
        return super().needed or bool(self.forwarding())

    def forwarding(self, *, feeds: bool = False) -> list[Connection]:
        """Returns the connections whose answer comes from another server; with `feeds`, also endless ones."""
        return [each for each in self.clients() if self._is_forwarded(each.stream, feeds)]

    def _is_forwarded(self, stream: Stream | None, feeds: bool) -> bool:
        if isinstance(stream, Later):
            return stream.tasks is not self._app.tasks  # the router looks for its server
        # Whatever is outside the standard may be a feed, which does not end by itself.
        return isinstance(stream, Forwarded) and (feeds or not is_feed(stream.request))

    async def _drain(self) -> None:
        """Also waits for forwarded answers, then breaks those that are left: their clients come back."""
        others = self._wait_for(self.forwarding, self._app.limits.grace_seconds)
        try:
            await asyncio.gather(super()._drain(), others)
        finally:
            for connection in self.forwarding(feeds=True):
                connection.abort()
