"""The line for a place on a full server: first come, first served, and only the first asks again."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from copy import copy

from ors.client.requests.retry import Retry, T, is_full
from ors.client.transports.options import Options
from ors.errors import TransportError, Unavailable


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
