"""One worker process: a server with peers, led by its supervisor."""

import asyncio
import os
import resource
import socket
import sys
from collections.abc import Iterator

from ors.cluster.link.handover import MAX_CONNECTIONS
from ors.cluster.local.messages import (
    Channel,
    JSONLines,
    WorkerConfig,
    WorkerReport,
    WorkerUpdate,
    memory,
)
from ors.cluster.member import Member
from ors.server import Server
from ors.server.identity import Identity
from ors.server.observe.events import Event, SessionOpened
from ors.server.process.lifeline import Lifeline

REPORT_SECONDS = 1.0
SUCCESSOR_SECONDS = 1.0
"""A retiring worker without a successor by then asks its clients to reconnect."""
LAST_CLIENTS_SECONDS = 2.0
"""How long a retiring worker waits for clients that cannot be handed over, such as encrypted ones."""
TICKS_A_SECOND = 10


class Worker(Member):
    """Serves its clients, and those of slots without a worker. Ends with its supervisor."""

    def __init__(
        self,
        server: Server,
        host: str,
        config: WorkerConfig,
        lifeline: Lifeline,
        *,
        insecure: bool = False,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
    ) -> None:
        self._config = config
        self._sockets = [socket.socket(fileno=number) for number in config.listeners]
        for each in self._sockets:
            # All workers share the sockets and their flags: in blocking mode, accept() could hang.
            each.setblocking(False)
        self._control = socket.socket(fileno=config.control)
        self._channel = Channel(self._control)
        self._lines = JSONLines()
        self._adopted: dict[int, asyncio.Server] = {}
        self._created = 0
        self._retired: float | None = None  # since when
        self._url = ""
        super().__init__(
            server,
            host,
            0,
            identity=Identity(config.slot, config.incarnation),
            insecure=insecure,
            ssl_certfile=ssl_certfile,
            ssl_keyfile=ssl_keyfile,
            link=socket.socket(fileno=config.link),
        )
        self.app.runtime.observers.all.append(self)
        lifeline.end = self.orphaned

    def work(self) -> None:
        """Serves until the process is told to end."""
        self.run(sockets=[self._sockets[self._config.slot].dup()])

    def observe(self, event: Event) -> None:
        """Counts sessions: a worker may be replaced after a number of them."""
        if type(event) is SessionOpened:
            self._created += 1

    def held(self) -> Iterator[int]:
        """Yields the file descriptors of this worker, also the inherited ones."""
        yield from super().held()
        yield from self._config.descriptors

    def listening(self) -> Iterator[int]:
        """Yields the file descriptors on which clients connect, also those of other slots."""
        yield from super().listening()
        yield from self._config.listeners

    # ── Start and end ────────────────────────────────────────────────────────────────────────────

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts serving, and reports it."""
        await super().startup(sockets)
        self._url = self.url
        asyncio.get_running_loop().add_reader(self._control, self._hear)
        self._report()

    async def on_tick(self, counter: int) -> bool:
        """Also reports, and ends a retiring worker once it is not needed. Called by uvicorn."""
        if counter % int(TICKS_A_SECOND * REPORT_SECONDS) == 0:
            self._report()
        if self._retired is not None:
            self._give_way(asyncio.get_running_loop().time() - self._retired)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends; messages of the supervisor are ignored from now on."""
        asyncio.get_running_loop().remove_reader(self._control)
        await super().shutdown(sockets)

    def _give_way(self, seconds: float) -> None:
        """Hands clients to another worker, so that none is closed just as a request arrives. Then ends."""
        successors = [peer for peer in self.peers if peer.taking]
        if successors and not self.config.is_ssl:
            own = [peer for peer in successors if peer.slot == self._config.slot]
            self.hand_over((own or successors)[0], MAX_CONNECTIONS)
        elif seconds > SUCCESSOR_SECONDS:
            self.say_goodbye()
        if not self.needed and (not self.clients() or seconds > LAST_CLIENTS_SECONDS):
            self.should_exit = True

    def _report(self) -> None:
        held = memory(os.getpid()) or _most_memory()
        report = WorkerReport(self._url, self.app.environments, len(self.app.sessions), self._created, held)
        self._channel.send(report)

    # ── Messages of the supervisor ───────────────────────────────────────────────────────────────

    def _hear(self) -> None:
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # the supervisor is gone; the lifeline ends this process
            asyncio.get_running_loop().remove_reader(self._control)
            return
        for update in self._lines.feed(data):
            self._apply(WorkerUpdate(**update))

    def _apply(self, update: WorkerUpdate) -> None:
        own = f"{self._config.slot}-{self._config.incarnation}."
        self.peers.update(address for address in update.addresses if own not in address)
        self._adopt(set(update.empty_slots) - {self._config.slot} if not update.retire else set())
        if update.retire and not self.app.runtime.retiring:
            self.app.retire()
            self._retired = asyncio.get_running_loop().time()
            self.servers[0].close()  # its successor accepts new clients

    def _adopt(self, slots: set[int]) -> None:
        for slot in self._adopted.keys() - slots:
            self._adopted.pop(slot).close()
        for slot in slots - self._adopted.keys():
            self.beside(self._take_over(slot))

    async def _take_over(self, slot: int) -> None:
        self._adopted[slot] = await self.listen(self._sockets[slot].dup(), self.config.ssl)


def _most_memory() -> int:
    """Returns the peak memory of this process in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
