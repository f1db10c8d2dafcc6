"""Several servers of one process, each linked to all others."""

import asyncio
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ors import Environment, Limits, Server
from ors.cluster.peers import UNIX
from ors.cluster.servers import LinkedServer, RouterServer
from ors.server.connections.link import LinkServer
from tests.support.raw_http import Raw
from tests.support.waiting import until


class ServerThread:
    """One of the servers, in its own thread."""

    def __init__(
        self,
        slot: int,
        folder: Path,
        environments: Sequence[type[Environment]],
        tls: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.address = f"{UNIX}{folder / str(slot)}.sock"
        link = socket.socket(socket.AF_UNIX)
        link.bind(self.address.removeprefix(UNIX))
        self._up = threading.Event()
        self._urls: list[str] = []
        server = Server(environments, slot=slot, **options)
        self.server = LinkedServer(server, "127.0.0.1", 0, on_start=self._started, link=link, **(tls or {}))
        self._thread = threading.Thread(target=self.server.run)

    def _started(self, url: str) -> None:
        self._urls.append(url)
        self._up.set()

    def start(self) -> None:
        self._thread.start()
        assert self._up.wait(20)

    def meet(self, addresses: Sequence[str]) -> None:
        """Sets the other servers, and waits for the links to them."""
        loop = self.server.loop
        others = [address for address in addresses if address != self.address]
        asyncio.run_coroutine_threadsafe(self._meet(others), loop).result(20)

    async def _meet(self, others: list[str]) -> None:
        self.server.peers.update(others)
        await until(
            lambda: {peer.address for peer in self.server.peers if peer.accepts_sessions} == set(others)
        )

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()

    def cut(self) -> None:
        """Breaks all its connections, as its death would."""

        def abort() -> None:
            for server in self.server.clients.servers:
                server.close()
            for connection in list(self.server.clients.open):
                connection.out.cut() if isinstance(connection, LinkServer) else connection.abort()

        self.server.loop.call_soon_threadsafe(abort)

    @property
    def raw(self) -> Raw:
        return Raw(self._urls[0])

    @property
    def sessions(self) -> int:
        return len(self.server.app.sessions)


@contextmanager
def linked_servers(
    count: int, folder: Path, environments: Sequence[type[Environment]], **options: Any
) -> Iterator[list[ServerThread]]:
    """Servers that are linked to each other."""
    with ExitStack() as stack:
        made = [ServerThread(slot, folder, environments, **options) for slot in range(count)]
        for one in made:
            one.start()
            stack.callback(one.stop)
        for one in made:
            one.meet([each.address for each in made])
        yield made


@contextmanager
def routing(urls: Sequence[str], api_key: str = "", **options: Any) -> Iterator[Raw]:
    """A router before these servers, in its own thread."""
    up = threading.Event()
    found: list[str] = []

    def started(url: str) -> None:
        found.append(url)
        up.set()

    runner = RouterServer(urls, "127.0.0.1", 0, Limits(grace_seconds=0.1), api_key, started, **options)
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        assert up.wait(20)
        yield Raw(found[0])
    finally:
        runner.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def minted(servers: Sequence[ServerThread], slot: int, environment: str = "lab", task: Any = None) -> str:
    """A new session on the server of that slot, created through the first server."""
    sid = servers[slot].server.app.sessions.identity.new_session_id()
    answer = servers[0].raw.post("/create", {"env_name": environment, "task_spec": task or {}}, sid=sid)
    assert answer.status == 200, answer
    return sid
