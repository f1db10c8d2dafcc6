"""How late the event loop was of late."""

import asyncio
from collections import deque

EVERY_SECONDS = 0.25
OF_LATE = 120
"""Looks back so many times: half a minute, so that no scrape misses what happened since the one before."""


class LoopLag:
    """Sets a clock and looks how late it rings: whatever blocks the loop for long enough is seen."""

    def __init__(self) -> None:
        self._late: deque[float] = deque(maxlen=OF_LATE)
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def seconds(self) -> float:
        """The worst of late."""
        return max(list(self._late), default=0.0)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Looks from now on."""
        self._due = loop.time() + EVERY_SECONDS
        self._timer = loop.call_at(self._due, self._ring, loop)

    def stop(self) -> None:
        """Looks no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._late.append(max(0.0, loop.time() - self._due))
        self.start(loop)
