"""The traffic of the last minutes, second by second."""

from collections import deque
from typing import Any

from ors.server.observe.events import CallFinished, Event

MINUTES = 5
MOST_SAMPLES = 2000
"""Calls of a second that are kept for percentiles: sorting them takes a fraction of a millisecond."""


class Traffic:
    """Counts calls, and sums them up every second."""

    def __init__(self) -> None:
        self.points: deque[dict[str, Any]] = deque(maxlen=MINUTES * 60)
        self._calls = self._refused = self._failed = 0
        self._seconds: list[float] = []

    def observe(self, event: Event) -> None:
        """Counts a call."""
        if type(event) is not CallFinished:
            return
        if self._calls < MOST_SAMPLES:
            self._seconds.append(event.seconds)
        else:
            self._seconds[self._calls % MOST_SAMPLES] = event.seconds
        self._calls += 1
        if event.outcome == "refused":
            self._refused += 1
        elif event.outcome == "failed":
            self._failed += 1

    def sum_up(self, at: float, sessions: int, running: int) -> dict[str, Any]:
        """Ends a second: returns its point, and starts the next."""
        ordered = sorted(self._seconds)
        point = {
            "at": round(at, 3),
            "sessions": sessions,
            "running": running,
            "calls": self._calls,
            "refused": self._refused,
            "failed": self._failed,
            **{f"p{share}": _percentile(ordered, share) for share in (50, 95, 99)},
        }
        self._calls = self._refused = self._failed = 0
        self._seconds = []
        self.points.append(point)
        return point


def _percentile(ordered: list[float], share: int) -> float | None:
    return round(ordered[(len(ordered) - 1) * share // 100], 6) if ordered else None
