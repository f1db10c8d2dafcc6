"""The one rule of trying again."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ors.client.options import Options
from ors.client.status_errors import StillStarting
from ors.client.transports.base import Broken, NotSent
from ors.errors import TransportError, Unavailable

__all__ = ["Retry"]

T = TypeVar("T")


class Retry:
    """Counts the attempts of one request and pauses between them, within its deadline."""

    __slots__ = ("_delay", "_going_on", "_left", "_limit", "_options", "deadline", "seconds")

    def __init__(self, options: Options, *, limit: int, seconds: float) -> None:
        self._options = options
        self._limit = limit
        self.seconds = seconds
        self.deadline = asyncio.get_running_loop().time() + seconds
        self._going_on: TransportError | None = None  # what the server said of itself last
        self.reset()

    def reset(self) -> None:
        """Counts anew: what went before had made progress."""
        self._left = self._limit
        self._delay = self._options.backoff_seconds

    async def until_answered(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What `attempt` gives, the first time that it gets through.

        Raises:
            TransportError: it did not, within the number of attempts and the time.
        """
        while True:
            try:
                async with asyncio.timeout_at(self.deadline):
                    return await attempt()
            except TimeoutError:
                raise self._going_on or TransportError(f"not answered within {self.seconds:g} s") from None
            except TransportError as error:
                await self.pause(error)

    async def pause(self, error: TransportError) -> None:
        """Waits until the next attempt is due.

        Raises:
            TransportError: `error`, when there is to be no next attempt.
        """
        delay = self._delay * random.uniform(0.5, 1.0)
        if isinstance(error, Unavailable) and error.retry_after is not None:
            # Not all at once when the server comes back.
            delay = max(delay, error.retry_after * random.uniform(1.0, 1.1))
        if self._left <= 0 or asyncio.get_running_loop().time() + delay > self.deadline:
            raise TransportError(str(error)) if isinstance(error, NotSent | Broken) else error
        self._going_on = error.with_traceback(None) if _goes_on(error) else None
        self._left -= self._going_on is None
        self._delay = min(2 * self._delay, self._options.backoff_limit_seconds)
        await asyncio.sleep(delay)


def _goes_on(error: TransportError) -> bool:
    """Whether nothing failed: a setup takes its time, or a server of ours is full and says when to ask."""
    return isinstance(error, StillStarting) or (
        isinstance(error, Unavailable) and error.reason == "limit" and error.retry_after is not None
    )
