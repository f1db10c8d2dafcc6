"""Runs the application under uvicorn: start, drain, stop."""

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
from collections.abc import Callable, Generator, Iterator, Sized
from contextlib import contextmanager
from functools import partial
from types import FrameType

import uvicorn

from ors.server.app import App
from ors.server.connections.acceptor import Acceptor
from ors.server.connections.asgi import ASGI
from ors.server.connections.connection import Connection
from ors.server.connections.connection_limit import OverflowListener
from ors.server.connections.listener import REQUEST_SECONDS, Application, Listener, Upgrade, Upgraded
from ors.server.episodes.default_executor import Executor
from ors.server.process.forks import disown, disown_signals
from ors.server.process.malloc import FreedMemory
from ors.server.process.shutdown import Deadline, leave_threads

log = logging.getLogger("ors.server")

LAST_WRITES_SECONDS = 5
LAST_TASKS_SECONDS = 1
"""Time for the remaining tasks of authors' code to be cancelled."""
LEAVE_SECONDS = 2.0
"""How long a server that ends waits for its peers to close their links."""
EMPTY_SECONDS = 3.0
"""How long a retiring server stays up without sessions: a client may hold an id and create one."""
AT_ONCE_SECONDS = 2
"""After a second signal the process ends within this time, even if the event loop is blocked."""
TICKS_A_SECOND = 10
_HANGUP: int | None = getattr(signal, "SIGHUP", None)  # not on Windows


class _Interrupted(Exception):
    """A signal came before the server had started."""


class Runner(uvicorn.Server):
    """uvicorn with our connections, a drain before its shutdown, and an exit that is not an error."""

    _deadline: Deadline | None = None
    _retires_until = math.inf

    connection_type: type[Connection] = Connection

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
                http=partial(self.connection_type, self._listener),  # type: ignore[arg-type]
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
        self._last_needed = 0.0  # when it had a session last, while it retires
        self._memory = FreedMemory()
        if isinstance(app, App):
            app.runtime.copies.release = self._release

    def add_upgrade(self, protocol: bytes, upgrade: Upgrade) -> None:
        """Lets connections upgrade to another protocol."""
        self._listener.upgrades[protocol] = upgrade

    @property
    def url(self) -> str:
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        scheme = "https" if self.config.is_ssl else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves until it is told to stop. Logs what authors' code left running, and does not wait for it.

        Raises:
            StartupFailed: the `startup` of an environment raised.
        """
        self._deadline = Deadline(self._app.limits.grace_seconds)
        if self._is_ours():
            # Modules and authors' data stay for good. Python's garbage collector need not visit them, which
            # would take 20 ms each time even without data.
            gc.freeze()
        loop = (self.config.get_loop_factory() or asyncio.new_event_loop)()
        try:
            asyncio.set_event_loop(loop)
            loop.run_until_complete(self.serve(sockets))
        except _Interrupted:
            log.warning("interrupted during startup")
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
        """Ends the process, if threads of authors' code would keep it alive."""
        leave_threads(self._app.limits.grace_seconds)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets environments start, then listens, and calls `on_start`."""
        asyncio.get_running_loop().set_default_executor(Executor(self._app.threads))
        await self._prepare()
        self._app.start()  # here, so that connections and their calls inherit its context
        await super().startup(sockets)
        if self.started and sys.platform != "win32":  # where only the event loop can accept
            self.servers = [listener for server in self.servers for listener in self._bounded(server)]
        if self.started and self._on_start is not None:
            self._on_start(self.url)

    async def _prepare(self) -> None:
        preparing = asyncio.create_task(self._app.prepare())
        while not preparing.done():
            await asyncio.wait({preparing}, timeout=1 / TICKS_A_SECOND)
            if self.should_exit:
                preparing.cancel()
                await asyncio.wait({preparing})
                raise _Interrupted
        preparing.result()

    def _bounded(self, server: asyncio.Server) -> list[asyncio.Server]:
        """Replaces a listening server by one that limits its connections."""
        listening = [each.dup() for each in server.sockets]
        server.close()
        return [self._acceptor(each, self.config.ssl) for each in listening]

    def _acceptor(self, listening: socket.socket, tls: ssl.SSLContext | None) -> asyncio.Server:
        # Has all that uvicorn uses of a server.
        start = self._listener.start_task
        return Acceptor(listening, self._overflow, self._open, start, tls)  # type: ignore[return-value]

    async def _open(self, client: socket.socket, tls: ssl.SSLContext | None, fits: bool) -> None:
        port = self._listener if fits else self._overflow
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: self.connection_type(port, self.config, self.server_state, {}),
            client,
            ssl=tls,
            ssl_handshake_timeout=REQUEST_SECONDS if tls is not None else None,
        )

    def clients(self) -> list[Connection]:
        return [each for each in list(self.server_state.connections) if isinstance(each, Connection)]

    def say_goodbye(self) -> None:
        """Asks every client, with its next answer, to reconnect."""
        self._listener.leaving = True

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn ten times a second; also closes idle connections."""
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
        """The file descriptors of this server's sockets."""
        yield from self.listening()
        for each in list(self.server_state.connections):
            transport = each._transport  # type: ignore[union-attr]
            if transport is not None:
                yield transport.get_extra_info("socket").fileno()

    def listening(self) -> Iterator[int]:
        """The file descriptors of listening sockets."""
        for server in getattr(self, "servers", ()):  # uvicorn sets it when it starts
            yield from (each.fileno() for each in server.sockets)

    def _release(self) -> None:
        disown(self.held())
        disown_signals(self.handle_exit)

    def orphaned(self) -> None:
        """Ends the server, from any thread, since its parent process is gone.

        Frees the port at once, even if the event loop is blocked: the next server may want it.
        """
        disown(self.listening())
        self._end()

    def _is_ours(self) -> bool:
        """Whether the process seems to exist for this server alone."""
        return threading.current_thread() is threading.main_thread()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handles signals while the server runs, also the end of its terminal."""
        with super().capture_signals(), at_hangup(self.handle_exit):
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handles a signal: retires or ends the server; the next signal ends it at once."""
        seconds = self._app.limits.retire_seconds
        waits = self._retires_until == math.inf and not self.should_exit
        if sig == signal.SIGTERM and seconds and waits:
            self._app.retire()
            self._retires_until = time.monotonic() + seconds
            self._last_needed = time.monotonic()
            return
        if self.should_exit and sig != _HANGUP:  # which a shell repeats
            self.force_exit = True
        self._end()

    def _end(self) -> None:
        self.should_exit = True
        if self._deadline is not None:
            self._deadline.set(AT_ONCE_SECONDS if self.force_exit else self._app.ending_seconds)

    @property
    def needed(self) -> bool:
        return not self._app.empty

    def _retire(self, now: float) -> None:
        if self.needed:
            self._last_needed = now
        if now > self._retires_until or now - self._last_needed > EMPTY_SECONDS:
            self._retires_until = math.inf
            self._end()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drains for the grace period, ends the remaining calls, and tears down all sessions."""
        if self._app.empty:
            await self._leave_peers()
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

    async def _leave_peers(self) -> None:
        """Closes the links to peers: answers what they have sent, and makes them send elsewhere."""
        self._app.leave()
        for upgraded in self._upgraded():
            upgraded.goodbye()
        await self._wait_for(self._upgraded, LEAVE_SECONDS)

    def _upgraded(self) -> list[Upgraded]:
        return [each for each in list(self.server_state.connections) if isinstance(each, Upgraded)]

    async def _wait_for(self, rest: Callable[[], Sized], seconds: float) -> None:
        """Waits until nothing is left, for `seconds` at most."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        # Polls, as uvicorn does with connections: there is no event for it.
        while rest() and loop.time() < deadline and not self.force_exit:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@contextmanager
def at_hangup(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handles the end of the terminal while the block runs, unless it is ignored, as with nohup."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or _HANGUP is None or signal.getsignal(_HANGUP) is not signal.SIG_DFL:
        yield
        return
    signal.signal(_HANGUP, handle)
    try:
        yield
    finally:
        signal.signal(_HANGUP, signal.SIG_DFL)


async def _cancel_the_rest() -> None:
    # As asyncio.run does, but not for ever: a task may refuse to be cancelled.
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        _, pending = await asyncio.wait(tasks, timeout=LAST_TASKS_SECONDS)
        for task in pending:
            log.warning("left behind: a task that refuses to be cancelled: %s", task.get_coro())
    await asyncio.get_running_loop().shutdown_asyncgens()
