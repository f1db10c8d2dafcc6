"""Keeps sessions alive with pings, and interrupts the awaits of those that are lost."""

import asyncio
import math
from types import TracebackType
from typing import Protocol, Self
from weakref import WeakSet

from ors.client.requests.retry import JITTER
from ors.client.transports.base import Broken
from ors.client.transports.options import Options
from ors.errors import ORSError, SessionLost, TransportError


class Interruptible:
    """Wraps awaits of the current task: `interrupt(error)`, from any task, makes them raise `error`.

    Cancels the task, as `asyncio.timeout` does, so that a call needs no task of its own.
    `silent_after` is the loop time after which the stream that is read here counts as dead; None is never.
    """

    __slots__ = ("_cancelling_before", "_error", "_task", "loop", "silent_after")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()  # once a call: each time takes a system call in CPython 3.11
        self._task: asyncio.Task[object] | None = None
        self._error: ORSError | None = None
        self._cancelling_before = 0
        self.silent_after: float | None = None

    def interrupt(self, error: ORSError) -> None:
        """Makes the await raise `error`, unless it has ended or was interrupted already."""
        if self._task is not None and self._error is None:
            self._error = error
            self._task.cancel()

    def __enter__(self) -> Self:
        task = asyncio.current_task(self.loop)
        assert task is not None
        self._task, self._error, self._cancelling_before = task, None, task.cancelling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        error, self._error = self._error, None
        if error is None or task is None:
            return
        try:
            # If the caller cancelled the task too, that cancellation wins.
            if task.uncancel() <= self._cancelling_before and isinstance(raised, asyncio.CancelledError):
                raise error from None
        finally:
            # The traceback refers to this frame, and to all data in the frames below. References from here to
            # the error, or to the task that ends with it, would keep that data until garbage collection.
            del error, raised, task


_CHECKS_PER_TIMEOUT = 20
_MAX_CHECK_SECONDS = 0.5
_MIN_CHECK_SECONDS = 0.01


class IdleSession(Protocol):
    """The part of a session that pinging needs."""

    kept: bool  # whether to ping it at all
    due: float  # loop time of its next ping
    heard: float  # loop time of the last answer of its server
    misses: int  # failed pings in a row

    async def ping(self) -> None:
        """Asks the server once whether the session exists."""

    def lose(self, message: str, reason: str | None = None) -> None:
        """Fails all that waits for the session, now and later."""


class KeepAlive:
    """Pings idle sessions, and interrupts streams that have been silent for too long.

    References to sessions are weak: one that its owner has dropped is no longer pinged.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        shortest = min(options.ping_seconds, options.heartbeat_seconds)
        self._check_seconds = max(_MIN_CHECK_SECONDS, min(shortest / _CHECKS_PER_TIMEOUT, _MAX_CHECK_SECONDS))
        self._sessions = WeakSet[IdleSession]()
        self._streams: set[Interruptible] = set()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots = asyncio.Semaphore(options.ping_concurrency)
        self._pings: set[asyncio.Task[None]] = set()

    def keep(self, session: IdleSession) -> None:
        """Pings `session` from now on, while it is `kept`."""
        self._ensure_running()
        # Random, so that many sessions opened at once are not all pinged at once.
        now = asyncio.get_running_loop().time()
        session.due = now + self._options.ping_seconds * JITTER.uniform(0.5, 1.0)
        self._sessions.add(session)

    def watch(self, stream: Interruptible) -> None:
        """Interrupts `stream` with `Broken` when its `silent_after` has passed."""
        self._streams.add(stream)
        if self._task is None or self._loop is not stream.loop:
            self._ensure_running()

    def unwatch(self, stream: Interruptible) -> None:
        self._streams.discard(stream)

    async def close(self) -> None:
        """Stops immediately, also pings that are under way."""
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
        loop = asyncio.get_running_loop()
        while self._sessions or self._streams or self._pings:
            await asyncio.sleep(self._check_seconds)
            self._interrupt_silent(loop.time())
            await self._ping_due(loop.time())
        self._task = None

    def _interrupt_silent(self, now: float) -> None:
        for stream in tuple(self._streams):
            if stream.silent_after is not None and stream.silent_after < now:
                stream.interrupt(Broken("the server sent nothing, not even a ping, for too long"))

    async def _ping_due(self, now: float) -> None:
        for session in tuple(self._sessions):
            if not session.kept:
                self._sessions.discard(session)
            elif session.due > now:
                continue
            elif now - session.heard < self._options.ping_seconds / 2:
                # A recent request has kept the session alive.
                session.due = session.heard + self._options.ping_seconds
            else:
                session.due = math.inf
                await self._slots.acquire()
                task = asyncio.create_task(self._ping(session))
                self._pings.add(task)
                task.add_done_callback(self._pings.discard)

    async def _ping(self, session: IdleSession) -> None:
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
                session.lose(*_loss(session.misses, error))
        finally:
            self._slots.release()
            session.due = started + self._options.ping_seconds


def _loss(misses: int, error: ORSError | TimeoutError) -> tuple[str, str | None]:
    """Message and reason for losing a session whose pings fail."""
    failed = f"{misses} pings in a row failed: {str(error) or 'no answer'}"
    if isinstance(error, TransportError | TimeoutError):
        return (
            f"the server is gone or cannot be reached, {failed}. A call that was running may have finished",
            "unreachable",
        )
    return failed, error.reason
