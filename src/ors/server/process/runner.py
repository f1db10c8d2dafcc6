"""Runs a server or a router as a process: what starts, what a signal does, and what stops, in order.

The first SIGTERM, SIGINT or SIGHUP ends the server. With `retire_seconds`, SIGTERM only makes it take no new
sessions, and it ends when the last one has. A second signal ends it at once.
"""

import asyncio
import gc
import logging
import math
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence, Sized
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Protocol

from ors.limits import Limits
from ors.server.connections.clients import Acceptor, Clients
from ors.server.connections.context import Responder
from ors.server.episodes.threads import Executor, Threads
from ors.server.process.system import Deadline, FreedMemory, leave_threads

log = logging.getLogger("ors.server")

LAST_TASKS_SECONDS = 1
"""Time for the remaining tasks of authors' code to be cancelled."""
EMPTY_SECONDS = 3.0
"""How long a retiring server stays up without sessions: a client may hold an id and create one."""
AT_ONCE_SECONDS = 2
"""After a second signal the process ends within this time, even if the event loop is blocked."""
TICKS_A_SECOND = 10
YOUNG_OBJECTS = 10_000
"""New objects after which Python's garbage collector runs; hundreds of calls at a time make fewer."""
_ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]
_HANGUP: int | None = getattr(signal, "SIGHUP", None)  # not on Windows
_HANDLED = [number for number in (*_ENDING, _HANGUP) if number is not None]


class Application(Responder, Protocol):
    """What a process serves: the environments of a server, or a router's servers."""

    limits: Limits

    @property
    def threads(self) -> Threads:
        """Run code that is not async."""

    @property
    def ending_seconds(self) -> float:
        """The longest that its end takes, unless authors' code blocks the event loop."""


class Part:
    """Something that starts and ends with a server. By default, each step does nothing."""

    async def start(self, runner: "Runner") -> None:
        """Runs before the server listens."""

    def tick(self, number: int) -> None:
        """Runs ten times a second while the server listens."""

    def retire(self) -> None:
        """Takes no new sessions."""

    @property
    def is_busy(self) -> bool:
        return False

    async def drain(self) -> None:
        """Takes no new work, and waits for what runs. Cancelled at a second signal."""

    def cut(self) -> None:
        """Breaks off what is left after the drain; its clients are still there."""

    async def stop(self) -> None:
        """Ends; all clients are gone. Skipped at a second signal."""


class _Interrupted(Exception):
    """A signal came before the server had started."""


class Runner:
    """Runs an application, its clients and its parts on an event loop, until a signal or `should_exit`."""

    loop: asyncio.AbstractEventLoop
    """Set by `run`."""

    def __init__(
        self,
        app: Application,
        host: str,
        port: int,
        on_start: Callable[[str], None] | None = None,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
        *,
        parts: Sequence[Part] = (),
    ) -> None:
        self._app = app
        self._address = (host, port)
        self._on_start = on_start
        self._certificate = (ssl_certfile, ssl_keyfile)
        self.parts = parts
        self.clients = Clients(app)
        self.servers: list[Acceptor | asyncio.Server] = []
        """What accepts clients on its own port."""
        self.shared_listeners: Sequence[int] = ()
        """Descriptors of sockets that share the port with other processes."""
        self.tls: ssl.SSLContext | None = None
        self.url = ""
        """Where it listens; empty before its start."""
        self.should_exit = False
        """Set it from any thread to end the server."""
        self._force_exit = False
        self._deadline: Deadline | None = None
        self._retires_until = math.inf
        self._last_busy = 0.0  # while it retires
        self._memory = FreedMemory()

    def run(self, sockets: Sequence[socket.socket] | None = None) -> None:
        """Serves until it is told to stop. Logs what authors' code left running, and does not wait for it.

        Raises:
            OSError: it cannot listen on its port.
            StartupFailed: the `startup` of an environment raised.
        """
        self._deadline = Deadline(self._app.limits.grace_seconds)
        loop = self.loop = _new_loop()
        try:
            asyncio.set_event_loop(loop)
            with self._as_owner():
                loop.run_until_complete(self._serve(sockets or [bound(*self._address)]))
        except _Interrupted:
            log.warning("interrupted during startup")
        finally:
            try:
                loop.run_until_complete(_cancel_the_rest())
            finally:
                asyncio.set_event_loop(None)
                loop.close()
                self._deadline.lift()
                for left in self._app.threads.busy():
                    log.warning("still running at exit: %s", left)

    async def _serve(self, sockets: Sequence[socket.socket]) -> None:
        try:
            await self._unless(lambda: self.should_exit, self._start(sockets), _Interrupted)
        except BaseException:
            for each in sockets:
                each.close()
            raise
        number = 0
        while not self.should_exit:
            self._tick(number)
            number += 1
            await asyncio.sleep(1 / TICKS_A_SECOND)
        await self._stop()

    # ── Start ────────────────────────────────────────────────────────────────────────────────────

    async def _start(self, sockets: Sequence[socket.socket]) -> None:
        asyncio.get_running_loop().set_default_executor(Executor(self._app.threads))
        certificate, key = self._certificate
        if certificate is not None:
            self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.tls.load_cert_chain(certificate, key)
        for part in self.parts:
            await part.start(self)
        self.servers = [await self.clients.listen(each, self.tls) for each in sockets]
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        scheme = "http" if self.tls is None else "https"
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        if self._on_start is not None:
            self._on_start(self.url)

    # ── While it serves ──────────────────────────────────────────────────────────────────────────

    def _tick(self, number: int) -> None:
        if number % TICKS_A_SECOND == 0:
            now = asyncio.get_running_loop().time()
            self.clients.sweep(now)
            if self._owns_process():
                self._memory.give_back(now)
        for part in self.parts:
            part.tick(number)
        if self._retires_until < math.inf:
            self._end_if_idle(time.monotonic())

    def _end_if_idle(self, now: float) -> None:
        if self.is_busy:
            self._last_busy = now
        if now > self._retires_until or now - self._last_busy > EMPTY_SECONDS:
            self._retires_until = math.inf
            self._end()

    @property
    def is_busy(self) -> bool:
        return any(part.is_busy for part in self.parts)

    def retire(self) -> None:
        for part in self.parts:
            part.retire()

    # ── Signals ──────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _as_owner(self) -> Iterator[None]:
        """Handles signals and bounds garbage collection, if the process seems to exist for this server."""
        if not self._owns_process():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _ENDING}
        # Saves 0.4 µs of each call, and pauses of 5 ms for each 20,000 calls. Modules and authors' data stay
        # for good: visiting them takes 20 ms even without data.
        gc.freeze()
        threshold = gc.get_threshold()
        gc.set_threshold(YOUNG_OBJECTS, *threshold[1:])
        try:
            with at_hangup(self.handle_exit):
                yield
        finally:
            gc.set_threshold(*threshold)
            gc.unfreeze()
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handles a signal: retires or ends the server; the next signal ends it at once."""
        seconds = self._app.limits.retire_seconds
        waits = self._retires_until == math.inf and not self.should_exit
        if sig == signal.SIGTERM and seconds and waits:
            self.retire()
            self._last_busy = time.monotonic()
            self._retires_until = self._last_busy + seconds
            return
        if self.should_exit and sig != _HANGUP:  # which a shell repeats
            self._force_exit = True
        self._end()

    def orphaned(self) -> None:
        """Ends the server, from any thread, since its parent process is gone.

        Frees the port at once, even if the event loop is blocked: the next server may want it.
        """
        null = os.open(os.devnull, os.O_RDWR)
        for number in [*self.clients.listening(), *self.shared_listeners]:
            with suppress(OSError):  # one of them is closed
                os.dup2(null, number, inheritable=False)  # their owners may still close the numbers
        self._end()

    def _end(self) -> None:
        self.should_exit = True
        if self._deadline is not None:
            self._deadline.set(AT_ONCE_SECONDS if self._force_exit else self._app.ending_seconds)

    # ── Stop ─────────────────────────────────────────────────────────────────────────────────────

    async def _stop(self) -> None:
        """Drains for the grace period, lets the last answers leave, and stops all parts."""
        drains = asyncio.gather(*(part.drain() for part in self.parts))
        await self._unless(lambda: self._force_exit, drains)
        for part in self.parts:
            part.cut()
        await self.clients.close(lambda: self._force_exit)
        for part in reversed(self.parts):
            if not self._force_exit:
                await part.stop()

    async def wait_until_none(self, left: Callable[[], Sized], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        # Polls: there is no event for it.
        while left() and loop.time() < deadline and not self._force_exit:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def _unless(
        self, told: Callable[[], bool], work: Awaitable[Any], error: type[Exception] | None = None
    ) -> None:
        """Runs `work` in a task, and cancels it when `told` becomes true; then raises `error`."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.wait({task}, timeout=1 / TICKS_A_SECOND)
            if told() and not task.done():
                task.cancel()
                await asyncio.wait({task})
                if error is not None:
                    raise error
                return
        task.result()

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Runs a function on the event loop, from any thread; not after the end."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(callback)

    def leave(self) -> None:
        """Ends the process, if threads of authors' code would keep it alive."""
        leave_threads(self._app.limits.grace_seconds)

    def _owns_process(self) -> bool:
        """Whether the process seems to exist for this server alone."""
        return threading.current_thread() is threading.main_thread()


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


# ── Forked children, such as those of multiprocessing ────────────────────────────────────────────


_MASKS = threading.local()


def _before_fork() -> None:
    # A signal would have no effect in a child that still has the server's handlers.
    _MASKS.before = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _MASKS.before)


def _in_child() -> None:
    for number in _HANDLED:
        if isinstance(getattr(signal.getsignal(number), "__self__", None), Runner):
            signal.set_wakeup_fd(-1)
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not for this system
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def bound(host: str, port: int) -> socket.socket:
    """Opens a listening socket. Raises OSError if the address cannot be used."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, port), family=family)


async def _cancel_the_rest() -> None:
    # As asyncio.run does, but not for ever: a task may refuse to be cancelled.
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        _, pending = await asyncio.wait(tasks, timeout=LAST_TASKS_SECONDS)
        for task in pending:
            log.warning("still running at exit: a task that refuses to be cancelled: %s", task.get_coro())
    await asyncio.get_running_loop().shutdown_asyncgens()
