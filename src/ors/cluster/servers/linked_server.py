"""A server with peers: its links, and clients whose answers come from another server."""

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ors.cluster.link.client import Forwarded
from ors.cluster.link.handover import HandoverServer, HandoverTarget
from ors.cluster.link.server import upgrade
from ors.cluster.routing.peers import Peers
from ors.cluster.routing.router import Router, is_feed
from ors.server import Server
from ors.server.app import App
from ors.server.connections.connection import Connection
from ors.server.connections.context import Responder
from ors.server.http.streams import Later, Stream
from ors.server.process.runner import Part, Runner
from ors.server.sessions.shared import Identity

MOVE_AFTER = 16
"""After this many requests in a row for another server of the machine, a connection moves there.

Forwarding costs two wake-ups per call, moving costs one, once."""


class Streak(NamedTuple):
    server: HandoverTarget
    length: int


class Forwarding(Part):
    """Moves clients to the servers that they ask, and waits for forwarded answers at the end."""

    def __init__(self, app: Responder) -> None:
        self._app = app
        self._runner: Runner | None = None
        self._successor: HandoverTarget | None = None  # takes over all clients' connections, between requests

    async def start(self, runner: Runner) -> None:
        self._runner = runner
        runner.clients.context.after_answer = self._answered

    # ── Moving connections ───────────────────────────────────────────────────────────────────────

    def _answered(self, connection: Connection) -> None:
        stream, streak = connection.stream, connection.note
        server = stream.link.handover if isinstance(stream, Forwarded) else None
        if server is None:
            streak = None
        else:
            streak = Streak(server, streak.length + 1 if streak and streak.server is server else 1)
        connection.note = streak
        if self._successor is not None or (streak is not None and streak.length >= MOVE_AFTER):
            asyncio.get_running_loop().call_soon(self._move, connection)  # when the answer is written

    def _move(self, connection: Connection) -> None:
        streak, spare = connection.note, connection.spare
        server = self._successor or (streak.server if streak is not None else None)
        if server is not None and spare is not None:
            connection.note = None
            if server.give(spare):
                connection.abort()  # in this process only

    def hand_over(self, successor: HandoverTarget, most: int) -> None:
        """Hands clients' connections to another server: idle ones now, the others after their answers."""
        self._successor = successor
        spare = [(each, number) for each in self._clients() if (number := each.spare) is not None]
        for start in range(0, len(spare), most):
            some = spare[start : start + most]
            if not successor.give(*(number for _, number in some)):
                break  # its queue is full
            for connection, _ in some:
                connection.abort()  # in this process only

    # ── The end ──────────────────────────────────────────────────────────────────────────────────

    @property
    def is_busy(self) -> bool:
        return bool(self.waiting())

    def waiting(self, *, feeds: bool = False) -> list[Connection]:
        """Returns the connections whose answer comes from another server; with `feeds`, also endless ones."""
        return [each for each in self._clients() if self._is_forwarded(each.stream, feeds)]

    def _is_forwarded(self, stream: Stream | None, feeds: bool) -> bool:
        if isinstance(stream, Later):
            return stream.tasks is not self._app.tasks  # the router looks for its server
        # Whatever is outside the standard may be a feed, which does not end by itself.
        return isinstance(stream, Forwarded) and (feeds or not is_feed(stream.request))

    async def drain(self) -> None:
        if self._runner is not None:
            await self._runner.wait_until_none(self.waiting, self._app.limits.grace_seconds)

    def cut(self) -> None:
        """Breaks forwarded answers: their clients come back through another server."""
        for connection in self.waiting(feeds=True):
            connection.abort()

    def _clients(self) -> list[Connection]:
        return [] if self._runner is None else list(self._runner.clients)


class LinkedServer(Runner):
    """Runs a server that forwards requests to its peers, and answers those that they forward."""

    def __init__(
        self,
        server: Server,
        host: str,
        port: int,
        *,
        on_start: Callable[[str], None] | None = None,
        identity: Identity | None = None,
        insecure: bool = False,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
        link: socket.socket | None = None,
        parts: Sequence[Part] = (),
    ) -> None:
        self.app: App = server._app
        if self.app.is_local:
            raise ValueError('return_errors="line" exposes source code and cannot be used with peers')
        server._guard(host, insecure)
        self.app.sessions.identity = identity or self.app.sessions.identity
        keys = list(self.app.keys.by_name.values())
        self.peers = Peers(self.app.environments, keys[0].secret if keys else "")
        self.app.peers = Router(self.peers, self.app)
        self.forwarding = Forwarding(self.app)
        super().__init__(
            self.app,
            host,
            port,
            on_start,
            ssl_certfile,
            ssl_keyfile,
            parts=[self.app, _Links(self.peers, link), self.forwarding, *parts],
        )
        self.clients.context.upgrades.update([upgrade(self.app)])


class _Links(Part):
    """The links to and from the other servers, over a Unix socket if they are on this machine."""

    def __init__(self, peers: Peers, link: socket.socket | None) -> None:
        self._peers = peers
        self._link = link
        self._handover: HandoverServer | None = None

    async def start(self, runner: Runner) -> None:
        """Listens for the other servers, and for the clients that they hand over."""
        if self._link is not None:
            clients = runner.clients
            self._handover = HandoverServer(
                self._link.getsockname(), lambda client: clients.context.start_task(clients.serve(client))
            )
            await clients.listen(self._link)

    async def drain(self) -> None:
        """Takes over no more clients; requests for other servers are forwarded until the end."""
        if self._handover is not None:
            self._handover.close()

    async def stop(self) -> None:
        await self._peers.close()

    def descriptors(self) -> Iterator[int]:
        yield from self._peers.held()
        if self._link is not None:
            yield self._link.fileno()
        if self._handover is not None:
            yield self._handover.fileno()
