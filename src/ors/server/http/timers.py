"""One timer that wakes many waiting streams at an interval."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Waiting = TypeVar("Waiting", bound=Hashable)


class IntervalTimer(Generic[Waiting]):
    """Wakes each waiting stream once, an interval after it was added.

    One shared timer, since a timer or a task per stream costs ten to a hundred times as much (55 ns here).
    Streams may be woken late by a fortieth of the interval, so that those that began together share one.
    """

    def __init__(self, seconds: float, wake: Callable[[Waiting], None]) -> None:
        self._seconds = seconds
        self._wake = wake
        self._due: dict[Waiting, float] = {}  # in order, since all have the same interval
        self._timer: asyncio.TimerHandle | None = None
        self.loop: asyncio.AbstractEventLoop
        """The event loop; set before anything is added."""

    def add(self, waiting: Waiting) -> None:
        """Wakes `waiting` in one interval, unless it is removed before."""
        self._due[waiting] = self.loop.time() + self._seconds
        if self._timer is None:
            self._timer = self.loop.call_later(self._seconds, self._ring)

    def remove(self, waiting: Waiting) -> None:
        self._due.pop(waiting, None)

    def _ring(self) -> None:
        # After callbacks that are ready: uvloop runs timers first, and a call that is about to finish
        # would count as slow.
        self.loop.call_soon(self._wake_due)

    def _wake_due(self) -> None:
        self._timer = None
        now = self.loop.time()
        due = [waiting for waiting, at in self._due.items() if at <= now]
        for waiting in due:
            del self._due[waiting]
        if self._due:
            first = next(iter(self._due.values()))
            self._timer = self.loop.call_at(max(first, now + self._seconds / 40), self._ring)
        for waiting in due:
            self._wake(waiting)
