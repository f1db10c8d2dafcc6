"""The one background task of a client: it pings open sessions and notices dead streams."""

import asyncio
import heapq
import random
import weakref
from itertools import count
from typing import Protocol

from ors.client.interruptible import Interruptible
from ors.client.options import Options
from ors.client.transports.base import Broken
from ors.errors import ORSError, SessionLost, TransportError

__all__ = ["Liveness"]

_TICKS = 20
_MAX_TICK_SECONDS = 0.5
_LEAST_SLEEP_SECONDS = 0.01


class Pinged(Protocol):
    """A session, as far as it is kept alive."""

    kept: bool
    due: float
    heard: float
    misses: int

    async def ping(self) -> None:
        """Asks once whether the session is there."""

    def lose(self, message: str, reason: str | None = None) -> None:
        """The session is gone: nothing more will come of it."""


class Liveness:
    """Pings every session that is kept and idle, and interrupts streams that have gone silent.

    Sessions are held weakly: one that its owner has dropped is no longer kept alive.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._tick = min(options.ping_seconds / _TICKS, options.heartbeat_seconds / _TICKS, _MAX_TICK_SECONDS)
        self._due: list[tuple[float, int, weakref.ref[Pinged]]] = []
        self._order = count()
        self._streams: set[Interruptible] = set()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots = asyncio.Semaphore(options.ping_concurrency)
        self._pings: set[asyncio.Task[None]] = set()

    def keep(self, session: Pinged) -> None:
        """Pings `session` from now on, for as long as it is `kept`."""
        self._ensure_running()
        # Many sessions opened at once are spread out from their first ping on.
        self._schedule(session, self._options.ping_seconds * random.uniform(0.5, 1.0))

    def watch(self, stream: Interruptible) -> None:
        """Interrupts `stream` with `Broken` when its `silent_after` has passed."""
        self._streams.add(stream)
        if self._task is None or self._loop is not asyncio.get_running_loop():
            self._ensure_running()

    def unwatch(self, stream: Interruptible) -> None:
        """The stream has ended."""
        self._streams.discard(stream)

    async def close(self) -> None:
        """Stops at once."""
        tasks = [task for task in (self._task, *self._pings) if task is not None]
        self._task = None
        if self._loop is asyncio.get_running_loop():
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _ensure_running(self) -> None:
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._loop is not loop:
            self._loop = loop
            self._slots = asyncio.Semaphore(self._options.ping_concurrency)
            self._task = loop.create_task(self._run())

    async def _run(self) -> None:
        now = asyncio.get_running_loop().time()
        look = now + self._tick
        while self._due or self._streams or self._pings:
            # As pings are due, not all of a tick at once: five hundred would hold up all other requests.
            wake = min(look, self._due[0][0]) if self._due else look
            await asyncio.sleep(max(wake - now, _LEAST_SLEEP_SECONDS))
            now = asyncio.get_running_loop().time()
            if now >= look:
                self._interrupt_silent(now)
                look = now + self._tick
            await self._ping_due(now)
        self._task = None

    def _interrupt_silent(self, now: float) -> None:
        for stream in tuple(self._streams):
            if stream.silent_after is not None and stream.silent_after < now:
                stream.interrupt(Broken("no byte came for too long"))

    async def _ping_due(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            due, _, held = heapq.heappop(self._due)
            session = held()
            if session is None or not session.kept or session.due != due:
                continue  # dropped, closed, or kept anew since
            idle = now - session.heard
            if idle < self._options.ping_seconds / 2:
                # A request has just done what a ping does.
                self._schedule(session, self._options.ping_seconds - idle)
                continue
            await self._slots.acquire()
            task = asyncio.create_task(self._ping(session))
            self._pings.add(task)
            task.add_done_callback(self._pings.discard)

    async def _ping(self, session: Pinged) -> None:
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._options.ping_seconds):
                await session.ping()
            session.misses = 0
        except SessionLost as error:
            session.lose(str(error), error.reason)
        except (ORSError, TimeoutError) as error:
            session.misses += 1
            if session.misses >= self._options.ping_failures:
                session.lose(*_given_up(session.misses, error))
        finally:
            self._slots.release()
        if session.kept:
            took = asyncio.get_running_loop().time() - started
            self._schedule(session, max(0.0, self._options.ping_seconds - took))

    def _schedule(self, session: Pinged, delay: float) -> None:
        session.due = asyncio.get_running_loop().time() + delay
        heapq.heappush(self._due, (session.due, next(self._order), weakref.ref(session)))


def _given_up(misses: int, error: ORSError | TimeoutError) -> tuple[str, str | None]:
    """What is said of a session whose pings fail, and the reason in a word."""
    failed = f"{misses} pings in a row failed: {str(error) or 'no answer'}"
    if isinstance(error, TransportError | TimeoutError):
        return (
            f"the server is gone or cannot be reached, {failed}. A call that was under way may have run",
            "unreachable",
        )
    return failed, error.reason
