"""One worker process: a server with peers, led by its supervisor, and the messages between the two."""

import asyncio
import json
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from ors.cluster.servers import LinkedServer
from ors.server import Server
from ors.server.connections.clients import Acceptor
from ors.server.process.runner import Part, Runner
from ors.server.process.system import Lifeline
from ors.server.sessions.shared import Identity

VARIABLE = "ORS_SERVE_WORKER_CONFIG"
"""The environment variable that holds the configuration of a worker process."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Start-up data of a worker, from its supervisor. All descriptors are inherited."""

    slot: int
    incarnation: int
    control: int
    """The file descriptor for messages to and from the supervisor."""
    listeners: Sequence[int]
    """The file descriptors of the sockets that share the port, one per slot."""
    link: int
    """The file descriptor of the socket for links from other workers."""

    @classmethod
    def read(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def text(self) -> str:
        return json.dumps(asdict(self))

    def take(self) -> Lifeline:
        """Makes what a worker inherits its own, before environment code can pass it to child processes."""
        os.environ.pop(VARIABLE, None)
        for number in self.descriptors:
            os.set_inheritable(number, False)
        return Lifeline(self.control)

    @property
    def descriptors(self) -> Sequence[int]:
        return [*self.listeners, self.link, self.control]


@dataclass(frozen=True, slots=True)
class WorkerUpdate:
    """Sent by the supervisor to every worker after each change."""

    addresses: Sequence[str] = ()
    """The addresses of all workers."""
    empty_slots: Sequence[int] = ()
    """Slots without a worker: the others accept their clients meanwhile."""
    retire: bool = False
    """Whether to take no new sessions and end with the last one."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """Sent by a worker to its supervisor once it is up."""

    url: str
    environments: Sequence[str] = ()


class Channel:
    """Exchanges messages without blocking.

    Each message describes the whole state, so a new one replaces one that could not be sent yet.
    """

    def __init__(self, control: socket.socket) -> None:
        control.setblocking(False)
        self._control = control
        self._line = b""  # the rest of a line that was sent in part
        self._next = b""  # the line after it
        self._received = b""  # the beginning of a line

    def send(self, message: WorkerUpdate | WorkerReport) -> None:
        """Sends a message, now or when there is room; without a reader it is lost."""
        self._next = json.dumps(asdict(message)).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        try:
            while self._line or self._next:
                if not self._line:
                    self._line, self._next = self._next, b""
                self._line = self._line[self._control.send(self._line) :]
        except BlockingIOError:
            return
        except OSError:
            self._line = self._next = b""

    def receive(self) -> list[dict[str, Any]] | None:
        """Returns the messages that have arrived; None if the other end is closed."""
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            return None
        *lines, self._received = (self._received + data).split(b"\n")
        return [json.loads(line) for line in lines] if data else None


SUCCESSOR_SECONDS = 1.0
"""A retiring worker without a successor by then asks its clients to reconnect."""
LAST_CLIENTS_SECONDS = 2.0
"""How long a retiring worker waits for clients that cannot be handed over, such as encrypted ones."""


class Worker(Part):
    """Serves its clients, and those of slots without a worker. Ends with its supervisor."""

    def __init__(
        self,
        server: Server,
        host: str,
        config: WorkerConfig,
        lifeline: Lifeline,
        **options: Any,  # as `LinkedServer` takes them
    ) -> None:
        self._config = config
        self._sockets = [socket.socket(fileno=number) for number in config.listeners]
        for each in self._sockets:
            # All workers share the sockets and their flags: in blocking mode, accept() could hang.
            each.setblocking(False)
        self._control = socket.socket(fileno=config.control)
        self._channel = Channel(self._control)
        self._adopted: dict[int, Acceptor | asyncio.Server] = {}
        self._retires = False
        self._retired: float | None = None  # since when
        self._server = LinkedServer(
            server,
            host,
            0,
            identity=Identity(config.slot, config.incarnation),
            link=socket.socket(fileno=config.link),
            parts=[self],
            **options,
        )
        self._server.shared_listeners = config.listeners
        self._app = self._server.app
        lifeline.end = self._server.orphaned

    def run(self) -> None:
        """Serves until the process is told to end, and then ends it."""
        self._server.run(sockets=[self._sockets[self._config.slot].dup()])
        self._server.leave()

    # ── As a part of its server ──────────────────────────────────────────────────────────────────

    async def start(self, runner: Runner) -> None:
        asyncio.get_running_loop().add_reader(self._control, self._hear)

    def tick(self, number: int) -> None:
        """Reports that it listens, and ends a retiring worker once it is not needed."""
        if number == 0:
            self._channel.send(WorkerReport(self._server.url, self._app.environments))
        if self._retired is not None:
            self._give_way(asyncio.get_running_loop().time() - self._retired)

    async def drain(self) -> None:
        asyncio.get_running_loop().remove_reader(self._control)

    def _give_way(self, seconds: float) -> None:
        """Hands clients to another worker, so that none is closed just as a request arrives. Then ends."""
        server = self._server
        successors = [peer for peer in server.peers if peer.accepts_sessions]
        if successors and server.tls is None:
            own = [peer for peer in successors if peer.slot == self._config.slot]
            server.forwarding.hand_over((own or successors)[0])
        elif seconds > SUCCESSOR_SECONDS:
            server.clients.say_goodbye()
        if not server.is_busy and (not any(server.clients) or seconds > LAST_CLIENTS_SECONDS):
            server.should_exit = True

    # ── Messages of the supervisor ───────────────────────────────────────────────────────────────

    def _hear(self) -> None:
        updates = self._channel.receive()
        if updates is None:  # the supervisor is gone; the lifeline ends this process
            asyncio.get_running_loop().remove_reader(self._control)
        for update in updates or ():
            self._apply(WorkerUpdate(**update))

    def _apply(self, update: WorkerUpdate) -> None:
        own = f"{self._config.slot}-{self._config.incarnation}."
        self._server.peers.update(address for address in update.addresses if own not in address)
        self._adopt(set(update.empty_slots) - {self._config.slot} if not update.retire else set())
        if update.retire and not self._retires:
            self._retires = True
            self._server.clients.context.start_task(self._retire())

    async def _retire(self) -> None:
        await self._server.peers.settle(SUCCESSOR_SECONDS)  # so that new sessions go to the successor at once
        self._app.retire()
        self._retired = asyncio.get_running_loop().time()
        self._server.servers[0].close()  # its successor accepts new clients

    def _adopt(self, slots: set[int]) -> None:
        for slot in self._adopted.keys() - slots:
            self._adopted.pop(slot).close()
        for slot in slots - self._adopted.keys():
            self._server.clients.context.start_task(self._take_over(slot))

    async def _take_over(self, slot: int) -> None:
        server = self._server
        self._adopted[slot] = await server.clients.listen(self._sockets[slot].dup(), server.tls)
