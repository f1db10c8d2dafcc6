"""The traffic of the last minutes, second by second."""

from collections import deque
from typing import Any

from ors.server.observe.episode_counters import EpisodeCounters, EpisodeTotals
from ors.server.observe.events import CallFinished, Event

MINUTES = 5
MOST_SAMPLES = 2000
"""Calls of a second that are kept for percentiles: sorting them takes a fraction of a millisecond."""


class Traffic:
    """Counts calls, and sums them up every second."""

    def __init__(self, episodes: EpisodeCounters) -> None:
        self._episodes = episodes
        self._before: dict[str, EpisodeTotals] = {}
        self.points: deque[dict[str, Any]] = deque(maxlen=MINUTES * 60)
        self._calls = self._refused = self._failed = 0
        self._seconds: list[float] = []

    def begin(self) -> None:
        """Begins with the next second: what happened before is not counted."""
        self._before = self._episodes.totals()
        self._calls = self._refused = self._failed = 0
        self._seconds = []

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
            "episodes": self._ended(),
            **{f"p{share}": _percentile(ordered, share) for share in (50, 95, 99)},
        }
        self._calls = self._refused = self._failed = 0
        self._seconds = []
        self.points.append(point)
        return point

    def _ended(self) -> dict[str, dict[str, float]]:
        """The episodes of the last second, by environment."""
        before, self._before = self._before, self._episodes.totals()
        none = EpisodeTotals()
        return {
            name: total.since(before.get(name, none))._asdict()
            for name, total in self._before.items()
            if total.ended != before.get(name, none).ended
        }


def _percentile(ordered: list[float], share: int) -> float | None:
    return round(ordered[(len(ordered) - 1) * share // 100], 6) if ordered else None
