"""Our application under uvicorn: how it starts, drains and stops."""

import asyncio
import gc
import logging
import math
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sized
from functools import partial
from types import FrameType

import uvicorn

from ors.server.app import App
from ors.server.connections.acceptor import Acceptor
from ors.server.connections.asgi import ASGI
from ors.server.connections.connection import Connection
from ors.server.connections.connection_limit import OverflowListener
from ors.server.connections.listener import REQUEST_SECONDS, Application, Listener, Upgrade, Upgraded
from ors.server.episodes.executor import Executor
from ors.server.process.forks import disown, disown_signals
from ors.server.process.malloc import FreedMemory
from ors.server.process.shutdown import Deadline, leave_threads

log = logging.getLogger("ors.server")

LAST_WRITES_SECONDS = 5
LAST_TASKS_SECONDS = 1
"""For tasks that authors' code has left, to be cancelled."""
PARTING_SECONDS = 2.0
"""How long a server that ends waits for others to take note of it."""
UNNEEDED_SECONDS = 3.0
"""A server that retires goes on empty for so long: a client may have an id for it, and no session yet."""
AT_ONCE_SECONDS = 2
"""A second signal ends the process within this, even if the event loop is blocked."""
TICKS_A_SECOND = 10


class Runner(uvicorn.Server):
    """uvicorn with our connections, a drain before its shutdown, and an exit that is not an error."""

    def __init__(
        self,
        app: Application,
        host: str,
        port: int,
        on_start: Callable[[str], None] | None = None,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
    ) -> None:
        self._listener = Listener(app)
        self._overflow = OverflowListener(app, lambda: len(self.server_state.connections))
        self._overflow.tick(time.time())
        self._listener.tick(time.time())
        super().__init__(
            uvicorn.Config(
                ASGI(app),
                host=host,
                port=port,
                access_log=False,
                http=partial(Connection, self._listener),  # type: ignore[arg-type]
                lifespan="on",
                log_level="warning",
                date_header=False,  # ours is written once a second, for all connections
                proxy_headers=False,
                server_header=False,
                ssl_certfile=ssl_certfile,
                ssl_keyfile=ssl_keyfile,
                timeout_graceful_shutdown=LAST_WRITES_SECONDS,
                ws="none",
            )
        )
        self._app = app
        self.server_state.tasks = app.tasks
        self._on_start = on_start
        self._deadline: Deadline | None = None
        self._retires_until = math.inf
        self._needed = 0.0  # when somebody needed it last, if it is to retire
        self._memory = FreedMemory()
        if isinstance(app, App):
            app.runtime.copies.let_go = self._let_go

    def add_upgrade(self, protocol: bytes, upgrade: Upgrade) -> None:
        """Lets connections change to another protocol."""
        self._listener.upgrades[protocol] = upgrade

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        scheme = "https" if self.config.is_ssl else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves until it is told to stop. What authors' code has left running is logged, not waited for."""
        self._deadline = Deadline()
        if self._is_ours():
            # What was loaded so far, authors' data included, is here to stay: Python's collector looks at it
            # no more, which takes 20 ms each time even without data.
            gc.freeze()
        loop = (self.config.get_loop_factory() or asyncio.new_event_loop)()
        try:
            asyncio.set_event_loop(loop)
            loop.run_until_complete(self.serve(sockets))
        finally:
            try:
                loop.run_until_complete(_cancel_the_rest())
            finally:
                asyncio.set_event_loop(None)
                loop.close()
                self._deadline.lift()
                if self._is_ours():
                    gc.unfreeze()
                for left in self._app.threads.busy():
                    log.warning("left behind: %s", left)

    def leave(self) -> None:
        """Ends the process, if it would wait for threads that authors' code has left."""
        leave_threads(self._app.limits.grace_seconds)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens, and says so."""
        asyncio.get_running_loop().set_default_executor(Executor(self._app.threads))
        await super().startup(sockets)
        if self.started and sys.platform != "win32":  # whose event loop can only accept by itself
            self.servers = [listener for server in self.servers for listener in self._bounded(server)]
        if self.started and self._on_start is not None:
            self._on_start(self.url)

    def _bounded(self, server: asyncio.Server) -> list[asyncio.Server]:
        """The same server, once it listens, with a bound to its connections."""
        listening = [each.dup() for each in server.sockets]
        server.close()
        return [self._acceptor(each, self.config.ssl) for each in listening]

    def _acceptor(self, listening: socket.socket, tls: ssl.SSLContext | None) -> asyncio.Server:
        # uvicorn asks no more of its servers than this one has.
        return Acceptor(listening, self._overflow, self._open, self._listener.start_task, tls)  # type: ignore[return-value]

    async def _open(self, client: socket.socket, tls: ssl.SSLContext | None, fits: bool) -> None:
        port = self._listener if fits else self._overflow
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: Connection(port, self.config, self.server_state, {}),
            client,
            ssl=tls,
            ssl_handshake_timeout=REQUEST_SECONDS if tls is not None else None,
        )

    def clients(self) -> list[Connection]:
        """The connections of clients."""
        return [each for each in list(self.server_state.connections) if isinstance(each, Connection)]

    def say_goodbye(self) -> None:
        """Every client is told with its next answer to connect anew."""
        self._listener.leaving = True

    async def on_tick(self, counter: int) -> bool:
        """uvicorn's clock: also sweeps connections on which nothing happens."""
        if counter % TICKS_A_SECOND == 0:
            self._listener.tick(time.time())
            self._overflow.tick(time.time())
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                connection.sweep(now)  # type: ignore[union-attr]
            if self._is_ours():
                self._memory.give_back(now)
        if self._retires_until < math.inf:
            self._retire(time.monotonic())
        return await super().on_tick(counter)

    def held(self) -> Iterator[int]:
        """The file descriptors of this server's sockets, as numbers."""
        yield from self.listening()
        for each in list(self.server_state.connections):
            transport = each._transport  # type: ignore[union-attr]
            if transport is not None:
                yield transport.get_extra_info("socket").fileno()

    def listening(self) -> Iterator[int]:
        """Those on which clients connect."""
        for server in getattr(self, "servers", ()):  # uvicorn sets it when it starts
            yield from (each.fileno() for each in server.sockets)

    def _let_go(self) -> None:
        disown(self.held())
        disown_signals(self.handle_exit)

    def orphaned(self) -> None:
        """Ends, from whichever thread, since the process that has started this one is gone.

        The port is free at once, also if the event loop is blocked: the next server may want it.
        """
        disown(self.listening())
        self._end()

    def _is_ours(self) -> bool:
        """Whether the process is there for this server alone, as far as one can tell."""
        return threading.current_thread() is threading.main_thread()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal to end, when all sessions have if it is to wait for them; the next one ends at once."""
        seconds = self._app.limits.retire_seconds
        waits = self._retires_until == math.inf and not self.should_exit
        if sig == signal.SIGTERM and seconds and waits:
            self._app.retire()
            self._retires_until = time.monotonic() + seconds
            self._needed = time.monotonic()
            return
        if self.should_exit:
            self.force_exit = True
        self._end()

    def _end(self) -> None:
        self.should_exit = True
        if self._deadline is not None:
            self._deadline.set(AT_ONCE_SECONDS if self.force_exit else self._app.ending_seconds)

    @property
    def needed(self) -> bool:
        """Whether it has sessions."""
        return not self._app.empty

    def _retire(self, now: float) -> None:
        if self.needed:
            self._needed = now
        if now > self._retires_until or now - self._needed > UNNEEDED_SECONDS:
            self._retires_until = math.inf
            self._end()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets running calls finish for the grace period, ends the rest, tears every session down."""
        if self._app.empty:
            await self._part()
        ends = {asyncio.create_task(self._drain())}
        while ends and not self.force_exit:
            _, ends = await asyncio.wait(ends, timeout=0.1)
        for end in ends:
            end.cancel()
        if ends:
            await asyncio.wait(ends)
        await super().shutdown(sockets)

    async def _drain(self) -> None:
        await self._app.drain()

    async def _part(self) -> None:
        """Lets other servers go: what they have sent is answered, what they would send goes elsewhere."""
        self._app.leave()
        for upgraded in self._upgraded():
            upgraded.goodbye()
        await self._wait_for(self._upgraded, PARTING_SECONDS)

    def _upgraded(self) -> list[Upgraded]:
        return [each for each in list(self.server_state.connections) if isinstance(each, Upgraded)]

    async def _wait_for(self, rest: Callable[[], Sized], seconds: float) -> None:
        """Waits until nothing is left, but not for longer."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        # As uvicorn waits for connections: nobody tells when one is done.
        while rest() and loop.time() < deadline and not self.force_exit:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def _cancel_the_rest() -> None:
    # As asyncio.run does it, but not for ever: a task may refuse to be cancelled.
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        _, pending = await asyncio.wait(tasks, timeout=LAST_TASKS_SECONDS)
        for task in pending:
            log.warning("left behind: a task that does not let itself be cancelled: %s", task.get_coro())
    await asyncio.get_running_loop().shutdown_asyncgens()
