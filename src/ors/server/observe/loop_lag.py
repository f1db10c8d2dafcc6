"""Measures recent event-loop lag."""

import asyncio
from collections import deque

EVERY_SECONDS = 0.25
SAMPLES = 120
"""Half a minute, so that no scrape misses a peak since the previous one."""


class LoopLag:
    """Sets a timer again and again, and measures how late it fires."""

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=SAMPLES)
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def seconds(self) -> float:
        return max(list(self._samples), default=0.0)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = loop.time() + EVERY_SECONDS
        self._timer = loop.call_at(self._due, self._fire, loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._samples.append(max(0.0, loop.time() - self._due))
        self.start(loop)
