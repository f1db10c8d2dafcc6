"""When a request is sent again, and after which pause."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ors.client.requests.status_errors import StillStarting
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
        """Repeats `attempt` until it raises no TransportError; returns its result.

        Raises:
            TransportError: no attempt succeeded within their number and the time.
        """
        while True:
            try:
                async with asyncio.timeout_at(self.deadline):
                    return await attempt()
            except TimeoutError:
                raise self._not_failed or TransportError(f"no answer within {self.seconds:g} s") from None
            except TransportError as error:
                await self.pause(error)

    async def pause(self, error: TransportError) -> None:
        """Waits until the next attempt is due.

        Raises:
            TransportError: `error`, if there is no attempt or no time left.
        """
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
    return isinstance(error, StillStarting) or is_full(error)


def is_full(error: TransportError) -> bool:
    """Whether the server is at a limit, and says when to come back."""
    return isinstance(error, Unavailable) and error.reason == "limit" and error.retry_after is not None
