"""Runs a server or a router that is one of several on uvicorn."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from ors.cluster.handover import Receiver
from ors.cluster.link.client import Forwarded
from ors.cluster.routing.lookup import Lookup
from ors.server.connections.connection import Connection
from ors.server.connections.listener import Application
from ors.server.process.runner import Runner

MOVE_AFTER = 16
"""A connection moves to another server of the machine when so many requests in a row were for it.

Forwarding takes two more wake-ups a call, moving takes one, once."""


class _Row(NamedTuple):
    """How many answers in a row a connection got from one server."""

    receiver: Receiver
    length: int


class ClusterRunner(Runner):
    """Waits for other servers' answers at the end, and moves connections to the servers that they ask."""

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
        self._successor: Receiver | None = None  # takes all clients' connections over, between two requests

    # ── More to listen to ────────────────────────────────────────────────────────────────────────

    async def listen(self, listener: socket.socket, tls: ssl.SSLContext | None = None) -> asyncio.Server:
        """Serves on one more socket, until it is closed; servers of this machine are always let in."""
        if listener.family == socket.AF_UNIX:
            loop = asyncio.get_running_loop()
            server = await loop.create_server(self._connected, sock=listener, backlog=self.config.backlog)
        else:
            listener.listen(self.config.backlog)
            server = self._acceptor(listener, tls)
        self.servers.append(server)
        return server

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine beside; uvicorn waits for it at the end."""
        self._listener.start_task(work)

    async def go_on(self, client: socket.socket) -> None:
        """Serves a connection that another server has accepted."""
        await asyncio.get_running_loop().connect_accepted_socket(self._connected, client)

    def _connected(self) -> Connection:
        return Connection(self._listener, self.config, self.server_state, {})

    # ── Moving connections ───────────────────────────────────────────────────────────────────────

    def _answered(self, connection: Connection) -> None:
        stream, row = connection.stream, connection.tag
        receiver = stream.receiver if isinstance(stream, Forwarded) else None
        if receiver is None:
            connection.tag = row = None
        else:
            before = row.length if isinstance(row, _Row) and row.receiver is receiver else 0
            connection.tag = row = _Row(receiver, before + 1)
        if self._successor is not None or (row is not None and row.length >= MOVE_AFTER):
            asyncio.get_running_loop().call_soon(self._move, connection)  # when the answer is written

    def _move(self, connection: Connection) -> None:
        row, spare = connection.tag, connection.spare
        receiver = self._successor or (row.receiver if isinstance(row, _Row) else None)
        if receiver is not None and spare is not None:
            connection.tag = None
            if receiver.give(spare):
                connection.detach()

    def hand_over(self, successor: Receiver, most: int) -> None:
        """Gives the clients' connections to another server: those that are quiet now, others soon."""
        self._successor = successor
        spare = [(each, number) for each in self.clients() if (number := each.spare) is not None]
        for start in range(0, len(spare), most):
            some = spare[start : start + most]
            if not successor.give(*(number for _, number in some)):
                break  # it has many to take already
            for connection, _ in some:
                connection.detach()

    # ── The end ──────────────────────────────────────────────────────────────────────────────────

    @property
    def needed(self) -> bool:
        """Whether it has sessions, or clients wait here for answers of other servers."""
        return super().needed or bool(self.forwarding())

    def forwarding(self, *, feeds: bool = False) -> list[Connection]:
        """The connections whose answer comes from another server; of feeds, which never end, if wanted."""
        return [each for each in self.clients() if _is_forwarded(each, feeds)]

    async def _drain(self) -> None:
        """Also waits for other servers' answers; then breaks what is left, since clients come back for it."""
        others = self._wait_for(self.forwarding, self._app.limits.grace_seconds)
        try:
            await asyncio.gather(super()._drain(), others)
        finally:
            for connection in self.forwarding(feeds=True):
                connection.abort()


def _is_forwarded(connection: Connection, feeds: bool) -> bool:
    stream = connection.stream
    return isinstance(stream, Lookup) or (isinstance(stream, Forwarded) and (feeds or stream.ends))
