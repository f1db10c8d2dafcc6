"""A server that is one of several: it forwards what belongs to the others, and moves clients to them."""

import socket
from collections.abc import Callable, Iterator, Sequence

from ors.cluster.link.handover import HandoverServer
from ors.cluster.link.server import upgrade
from ors.cluster.routing.peers import Peers
from ors.cluster.routing.router import Router
from ors.cluster.servers.forwarding import Forwarding, MovableConnection
from ors.server import Server
from ors.server.app import App
from ors.server.process.runner import Part, Runner
from ors.server.sessions.shared import Identity


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
            connection_type=MovableConnection,
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
