"""When a request is sent again, after which pause, and in which order clients wait for a full server."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from copy import copy
from typing import TypeVar

from ors.client.requests.status_errors import STARTING
from ors.client.transports.base import Broken, NotSent, running_loop
from ors.client.transports.options import Options
from ors.errors import TransportError, Unavailable

T = TypeVar("T")
JITTER = random.SystemRandom()
"""Without state: environments may depend on the global random numbers of this process."""


class Retry:
    """The attempts of one request: how many are left, the pauses between them, the deadline."""

    __slots__ = ("_delay", "_left", "_not_failed", "_options", "deadline", "seconds")

    def __init__(
        self, options: Options, *, limit: int, seconds: float, deadline: float | None = None
    ) -> None:
        self._options = options
        self._left = limit
        self._delay = options.backoff_seconds
        self.seconds = seconds
        self.deadline = running_loop().time() + seconds if deadline is None else deadline
        self._not_failed: TransportError | None = None  # the last answer, if it only asked to wait

    async def run(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeats `attempt` until it succeeds. Raises its TransportError when no attempt or time is left."""
        while True:
            try:
                async with asyncio.timeout_at(self.deadline):
                    return await attempt()
            except TimeoutError:
                raise self._not_failed or TransportError(f"no answer within {self.seconds:g} s") from None
            except TransportError as error:
                await self.pause(error)

    async def pause(self, error: TransportError) -> None:
        """Waits until the next attempt is due. Raises `error` if no attempt or time is left."""
        delay = self._delay * JITTER.uniform(0.5, 1.0)
        if isinstance(error, Unavailable) and error.retry_after is not None:
            # Random, so that not all clients come back at once.
            delay = max(delay, error.retry_after * JITTER.uniform(1.0, 1.1))
        if self._left <= 0 or asyncio.get_running_loop().time() + delay > self.deadline:
            raise TransportError(str(error)) if isinstance(error, NotSent | Broken) else error
        self._not_failed = error.with_traceback(None) if _asks_to_wait(error) else None
        self._left -= self._not_failed is None
        self._delay = min(2 * self._delay, self._options.backoff_limit_seconds)
        await self._sleep(delay)

    async def _sleep(self, delay: float) -> None:
        await asyncio.sleep(delay)


def _asks_to_wait(error: TransportError) -> bool:
    """Whether nothing failed: a setup still runs, or the server is full."""
    return error.reason == STARTING or is_full(error)


def is_full(error: TransportError) -> bool:
    """Whether the server is at a limit, and says when to come back."""
    return isinstance(error, Unavailable) and error.reason == "limit" and error.retry_after is not None


class WaitingLine:
    """Who waits for a place; `freed` is set when this client has deleted a session."""

    def __init__(self) -> None:
        self.waiting = 0
        self.turn = asyncio.Lock()
        self.freed = asyncio.Event()
        self.refusal: Unavailable | None = None  # of the last who asked


class RetryInLine(Retry):
    """The attempts to create one session. One that finds the server full, or a line, goes to its end."""

    def __init__(self, options: Options, line: WaitingLine) -> None:
        super().__init__(options, limit=options.retries, seconds=options.request_seconds)
        self._line = line
        self._waits = self._first = False

    async def run(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeats `attempt` when it is its turn: see `Retry.run`."""
        line = self._line
        try:
            if line.waiting:
                await self._enter()
            result = await super().run(attempt)
            line.refusal = None
            return result
        except Unavailable as error:
            line.refusal = copy(error)  # without its traceback
            raise
        finally:
            line.waiting -= self._waits
            if self._first:
                line.turn.release()

    async def pause(self, error: TransportError) -> None:
        """Waits for the next attempt, on a full server in the line."""
        await (self._enter() if is_full(error) and not self._waits else super().pause(error))

    async def _enter(self) -> None:
        self._waits = True
        self._line.waiting += 1
        self._first = await self._line.turn.acquire()
        now = asyncio.get_running_loop().time()
        if self._line.refusal is None:
            self.deadline = now + self.seconds  # a line that moves is no reason to give up
        else:
            self._not_failed = copy(self._line.refusal)
            if now > self.deadline:
                raise self._not_failed

    async def _sleep(self, delay: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._line.freed.wait()
        self._line.freed.clear()
