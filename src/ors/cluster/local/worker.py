"""One worker process: a server of several, led by its supervisor."""

import asyncio
import os
import resource
import socket
import sys
from collections.abc import Iterator

from ors.cluster.handover import MOST
from ors.cluster.local.messages import Assignment, Channel, JSONLines, Orders, WorkerReport
from ors.cluster.local.spawn import memory
from ors.cluster.member import Member
from ors.server import Server
from ors.server.identity import Identity
from ors.server.observe.events import Event, SessionOpened
from ors.server.process.lifeline import Lifeline

REPORT_SECONDS = 1.0
HEIR_SECONDS = 1.0
"""A worker that is replaced tells clients to connect anew, if nobody is there by then to take them over."""
LAST_CLIENTS_SECONDS = 2.0
"""It ends at the earliest then, if some cannot be taken over, such as those that are encrypted."""
TICKS_A_SECOND = 10


class Worker(Member):
    """Serves its share, and its neighbours' clients while they are down. Ends with its supervisor."""

    def __init__(
        self,
        server: Server,
        host: str,
        assignment: Assignment,
        lifeline: Lifeline,
        *,
        insecure: bool = False,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
    ) -> None:
        self._assignment = assignment
        self._sockets = [socket.socket(fileno=number) for number in assignment.listeners]
        for each in self._sockets:
            # All workers share them, and whether they block too: another one would wait in accept() for ever.
            each.setblocking(False)
        self._control = socket.socket(fileno=assignment.control)
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
            identity=Identity(assignment.slot, assignment.incarnation),
            insecure=insecure,
            ssl_certfile=ssl_certfile,
            ssl_keyfile=ssl_keyfile,
            link=socket.socket(fileno=assignment.link),
        )
        self.app.runtime.observers.all.append(self)
        lifeline.end = self.orphaned

    def work(self) -> None:
        """Serves until it is told to end."""
        self.run(sockets=[self._sockets[self._assignment.slot].dup()])

    def observe(self, event: Event) -> None:
        """Counts sessions: a worker may be replaced after so many."""
        if type(event) is SessionOpened:
            self._created += 1

    def held(self) -> Iterator[int]:
        """The file descriptors of this worker, also those of its supervisor's."""
        yield from super().held()
        yield from self._assignment.descriptors

    def listening(self) -> Iterator[int]:
        """Those on which clients connect, also to other workers."""
        yield from super().listening()
        yield from self._assignment.listeners

    # ── Life ─────────────────────────────────────────────────────────────────────────────────────

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves, and says so."""
        await super().startup(sockets)
        self._url = self.url
        asyncio.get_running_loop().add_reader(self._control, self._hear)
        self._report()

    async def on_tick(self, counter: int) -> bool:
        """uvicorn's clock: also reports, and ends a worker that retires when nobody needs it any more."""
        if counter % int(TICKS_A_SECOND * REPORT_SECONDS) == 0:
            self._report()
        if self._retired is not None:
            self._give_way(asyncio.get_running_loop().time() - self._retired)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends; the supervisor is deaf to it from now on."""
        asyncio.get_running_loop().remove_reader(self._control)
        await super().shutdown(sockets)

    def _give_way(self, seconds: float) -> None:
        """Gives clients to another worker: no connection is closed just as a request arrives. Then ends."""
        heirs = [peer for peer in self.peers if peer.taking]
        if heirs and not self.config.is_ssl:
            own = [peer for peer in heirs if peer.slot == self._assignment.slot]
            self.hand_over((own or heirs)[0], MOST)
        elif seconds > HEIR_SECONDS:
            self.say_goodbye()
        if not self.needed and (not self.clients() or seconds > LAST_CLIENTS_SECONDS):
            self.should_exit = True

    def _report(self) -> None:
        held = memory(os.getpid()) or _most_memory()
        report = WorkerReport(self._url, self.app.environments, len(self.app.sessions), self._created, held)
        self._channel.send(report)

    # ── What the supervisor says ─────────────────────────────────────────────────────────────────

    def _hear(self) -> None:
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # the supervisor is gone, as its lifeline knows
            asyncio.get_running_loop().remove_reader(self._control)
            return
        for order in self._lines.feed(data):
            self._obey(Orders(**order))

    def _obey(self, orders: Orders) -> None:
        own = f"{self._assignment.slot}-{self._assignment.incarnation}."
        self.peers.meet(place for place in orders.places if own not in place)
        self._adopt(set(orders.orphans) - {self._assignment.slot} if not orders.retire else set())
        if orders.retire and not self.app.runtime.retiring:
            self.app.retire()
            self._retired = asyncio.get_running_loop().time()
            self.servers[0].close()  # its place is taken: new clients connect there

    def _adopt(self, slots: set[int]) -> None:
        for slot in self._adopted.keys() - slots:
            self._adopted.pop(slot).close()
        for slot in slots - self._adopted.keys():
            self.beside(self._take_over(slot))

    async def _take_over(self, slot: int) -> None:
        self._adopted[slot] = await self.listen(self._sockets[slot].dup(), self.config.ssl)


def _most_memory() -> int:
    """Bytes of memory that this process has had at most."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
