"""The traffic of the last minutes, second by second, from the server's counters."""

from collections import Counter, deque
from itertools import islice
from typing import Any

from ors.server.observe.episode_counters import EpisodeTotals
from ors.server.runtime import Runtime

MINUTES = 5
MOST_SAMPLES = 2000
"""Calls of a second that percentiles are taken from: sorting them takes a fraction of a millisecond."""


class Traffic:
    """Sums up every second. It reads counters that are kept anyway, so a call pays nothing for it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._calls: Counter[str] = Counter()
        self._episodes: dict[str, EpisodeTotals] = {}
        self._since = float("-inf")
        self.points: deque[dict[str, Any]] = deque(maxlen=MINUTES * 60)

    def sum_up(self, at: float, sessions: int) -> dict[str, Any]:
        """Ends a second: returns its point, and starts the next."""
        before, self._calls = self._calls, self._runtime.calls.outcomes()
        calls = self._calls - before
        since, self._since = self._since, self._runtime.now()
        recent = () if self._runtime.recent is None else self._runtime.recent.since(since)
        ordered = sorted(call.seconds for call in islice(recent, MOST_SAMPLES))
        point = {
            "at": round(at, 3),
            "sessions": sessions,
            "running": self._runtime.running,
            "calls": calls.total(),
            "refused": calls["refused"],
            "failed": calls["failed"],
            "episodes": self._ended(),
            **{f"p{share}": _percentile(ordered, share) for share in (50, 95, 99)},
        }
        self.points.append(point)
        return point

    def _ended(self) -> dict[str, dict[str, float]]:
        """The episodes of the last second, by environment."""
        before, self._episodes = self._episodes, self._runtime.episodes.totals()
        none = EpisodeTotals()
        return {
            name: total.since(before.get(name, none))._asdict()
            for name, total in self._episodes.items()
            if total.ended != before.get(name, none).ended
        }


def _percentile(ordered: list[float], share: int) -> float | None:
    return round(ordered[(len(ordered) - 1) * share // 100], 6) if ordered else None
