"""A server that is one of several, and a door to all of them."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from ors.cluster.moving import Inlet
from ors.cluster.peers import Peers
from ors.cluster.router import Router
from ors.server import Server
from ors.server._uvicorn import Runner
from ors.server.app import App
from ors.server.dock import Dock
from ors.server.identity import Identity
from ors.server.requests import Request

PARTING_SECONDS = 2.0
"""How long a server that ends waits for the others to take note of it."""


class _Home:
    """This server, as its router sees it."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.identity = app.house.identity

    def has(self, sid: str) -> bool:
        return sid in self._app.sessions

    def standing(self, sid: str) -> int:
        return self._app.sessions.standing(sid, asyncio.get_running_loop().time())

    def take(self, request: Request) -> Any:
        return self._app.take_forwarded(request)

    @property
    def taking(self) -> bool:
        return self._app.house.taking

    @property
    def leaving(self) -> bool:
        return self._app.house.leaving

    @property
    def sessions(self) -> int:
        return len(self._app.sessions)


class Member(Runner):
    """Runs a server that forwards what belongs to others, and answers what they forward."""

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
        server._guard(host, insecure)
        self.app.house.identity = identity or self.app.house.identity
        super().__init__(self.app, host, port, on_start, ssl_certfile, ssl_keyfile)
        keys = list(self.app.keys.by_name.values())
        self.peers = Peers(self.app.environments, keys[0].secret if keys else "")
        self.app.neighbours = Router(self.peers, _Home(self.app))
        self._link = link
        self._inlet: Inlet | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens for the others, then for clients."""
        await super().startup(sockets)
        if self._link is not None:
            self._inlet = Inlet(self._link.getsockname(), self._welcome)
            await self.listen(self._link)

    def _welcome(self, client: socket.socket) -> None:
        """Goes on with a client's connection that another server has begun with."""
        task = asyncio.get_running_loop().create_task(self.go_on(client))
        self.server_state.tasks.add(task)
        task.add_done_callback(self.server_state.tasks.discard)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends as a server alone does; what comes for others is forwarded until then."""
        if self._inlet is not None:
            self._inlet.close()
        if not len(self.app.sessions):
            await self._part()
        await super().shutdown(sockets)
        await self.peers.close()

    async def _part(self) -> None:
        """Lets the others go: what they have sent is answered, what they would send goes elsewhere."""
        self.app.house.leaving = True
        for dock in self._docks():
            dock.part()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PARTING_SECONDS
        # As uvicorn waits for connections: nobody tells when one is closed.
        while self._docks() and loop.time() < deadline and not self.force_exit:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def _docks(self) -> list[Dock]:
        return [each for each in list(self.server_state.connections) if isinstance(each, Dock)]
