"""A server that is one of several: it forwards what belongs to the others."""

import socket
from collections.abc import Callable, Iterator

from ors.cluster.link.handover import HandoverServer
from ors.cluster.link.server import upgrade
from ors.cluster.routing.peer import LocalServer
from ors.cluster.routing.peers import Peers
from ors.cluster.routing.router import Router
from ors.cluster.runner import ClusterRunner
from ors.server import Server
from ors.server.app import App
from ors.server.identity import Identity


class Member(ClusterRunner):
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
    ) -> None:
        self.app: App = server._app
        if self.app.is_local:
            raise ValueError('return_errors="line" shows source code: a server with peers cannot have it')
        server._guard(host, insecure)
        self.app.runtime.identity = identity or self.app.runtime.identity
        super().__init__(self.app, host, port, on_start, ssl_certfile, ssl_keyfile)
        keys = list(self.app.keys.by_name.values())
        self.peers = Peers(self.app.environments, keys[0].secret if keys else "")
        self.add_upgrade(*upgrade(self.app))
        self.app.peers = Router(self.peers, LocalServer(self.app))
        self._link = link
        self._handover: HandoverServer | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens for clients, then for the other servers."""
        await super().startup(sockets)
        if self._link is not None:
            self._handover = HandoverServer(
                self._link.getsockname(), lambda client: self.beside(self.go_on(client))
            )
            await self.listen(self._link)

    def held(self) -> Iterator[int]:
        """Yields the file descriptors of this server's sockets, also those to and from other servers."""
        yield from super().held()
        yield from self.peers.held()
        if self._link is not None:
            yield self._link.fileno()
        if self._handover is not None:
            yield self._handover.fileno()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends like a single server; requests for other servers are forwarded until then."""
        if self._handover is not None:
            self._handover.close()
        await super().shutdown(sockets)
        await self.peers.close()
