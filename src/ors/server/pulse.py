"""One timer that wakes many waiting streams at an interval."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Waiting = TypeVar("Waiting", bound=Hashable)


class Pulse(Generic[Waiting]):
    """Wakes each waiting stream once, an interval after it was added.

    One shared timer, since a timer or a task per stream costs ten to a hundred times as much (55 ns here).
    Streams may be woken late by a fortieth of the interval, so that those that began together share one.
    """

    def __init__(self, seconds: float, wake: Callable[[Waiting], None]) -> None:
        self._seconds = seconds
        self._wake = wake
        self._due: dict[Waiting, float] = {}  # in order, since all have the same interval
        self._timer: asyncio.TimerHandle | None = None

    def add(self, waiting: Waiting, loop: asyncio.AbstractEventLoop) -> None:
        """Wakes `waiting` in one interval, unless it is removed before."""
        self._due[waiting] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._ring, loop)

    def remove(self, waiting: Waiting) -> None:
        """Forgets `waiting`."""
        self._due.pop(waiting, None)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        # Behind what is ready to run: uvloop looks at its timers first, and a call whose turn it is
        # on the loop would be told that it takes too long.
        loop.call_soon(self._wake_due, loop)

    def _wake_due(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        due = [waiting for waiting, at in self._due.items() if at <= now]
        for waiting in due:
            del self._due[waiting]
        if self._due:
            first = next(iter(self._due.values()))
            self._timer = loop.call_at(max(first, now + self._seconds / 40), self._ring, loop)
        for waiting in due:
            self._wake(waiting)
