"""The traffic of the last minutes, second by second, and the episodes that ended last."""

import time
from collections import Counter, deque
from heapq import nlargest
from typing import Any

from ors.server.admin.tasks import TaskPreviews
from ors.server.observe.counters import EpisodeTotals
from ors.server.observe.events import EpisodeEnded
from ors.server.sessions.kept_results import MOST_A_SECOND
from ors.server.sessions.shared import Shared

MINUTES = 5
KEPT = 100
"""Episodes of each environment that are kept."""
SHOWN = 50


class Traffic:
    """Sums up every second. It reads counters that are kept anyway, so a call pays nothing for it."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._calls: Counter[str] = Counter()
        self._episodes: dict[str, EpisodeTotals] = {}
        self._since = float("-inf")
        self.points: deque[dict[str, Any]] = deque(maxlen=MINUTES * 60)

    def sum_up(self, at: float, sessions: int) -> dict[str, Any]:
        """Ends a second: returns its point, and starts the next."""
        before, self._calls = self._calls, self._shared.calls.outcomes()
        calls = self._calls - before
        since, self._since = self._since, self._shared.now()
        ordered: list[float] = []
        if (recent := self._shared.recent) is not None:
            ordered = sorted(call.seconds for call in recent.since(since))
            recent.left = MOST_A_SECOND
        point = {
            "at": round(at, 3),
            "sessions": sessions,
            "running": self._shared.running,
            "calls": calls.total(),
            "refused": calls["refused"],
            "failed": calls["failed"],
            "episodes": self._ended(),
            **{f"p{share}": _percentile(ordered, share) for share in (50, 95, 99)},
        }
        self.points.append(point)
        return point

    def _ended(self) -> dict[str, dict[str, float]]:
        before, self._episodes = self._episodes, self._shared.episodes.totals()
        none = EpisodeTotals()
        return {
            name: total.since(before.get(name, none))._asdict()
            for name, total in self._episodes.items()
            if total.ended != before.get(name, none).ended
        }


def _percentile(ordered: list[float], share: int) -> float | None:
    return round(ordered[(len(ordered) - 1) * share // 100], 6) if ordered else None


class EndedEpisodes:
    """Keeps the episodes of each environment that ended last.

    Their rows are made when somebody looks, or by `settle`: a busy server ends thousands in a second.
    """

    def __init__(self, shared: Shared, previews: TaskPreviews) -> None:
        self._shared = shared
        self._previews = previews
        self._fresh: dict[str, deque[tuple[EpisodeEnded, float, float]]] = {}  # with the times of their ends
        self._kept: dict[str, deque[tuple[str, dict[str, Any]]]] = {}
        self.changes = 0
        """How many episodes have ended."""

    def observe(self, event: EpisodeEnded) -> None:
        self.changes += 1
        fresh = self._fresh.get(event.environment)
        if fresh is None:
            fresh = self._fresh[event.environment] = deque(maxlen=KEPT)
            self._kept[event.environment] = deque(maxlen=KEPT)
        loop = self._shared.loop
        fresh.append((event, time.time(), 0.0 if loop is None else loop.time() - event.created))

    def settle(self) -> None:
        """Makes the rows of new episodes, and lets go of their tasks, which may be large."""
        for environment, fresh in self._fresh.items():
            rows = [(event.key, self._row(event, ended, seconds)) for event, ended, seconds in fresh]
            self._kept[environment].extend(rows)
            fresh.clear()

    def _row(self, event: EpisodeEnded, ended: float, seconds: float) -> dict[str, Any]:
        return {
            "sid": event.sid,
            "environment": event.environment,
            "outcome": event.outcome,
            "reward": None if event.reward is None else round(event.reward, 9),
            "components": {name: round(value, 9) for name, value in event.components.items()},
            "calls": event.calls,
            "ended": round(ended, 3),
            "seconds": round(seconds, 3),
            "task": self._previews.short(event.task or {}, event.environment, event.key),
        }

    def find(self, sid: str, key: str) -> dict[str, Any] | None:
        """The episode of a session of that key, if it is kept."""
        self.settle()
        mine = (row for rows in self._kept.values() for owner, row in rows if owner == key)
        return next((row for row in mine if row["sid"] == sid), None)

    def shown(self, key: str, environment: str) -> list[dict[str, Any]]:
        """The episodes of a key, newest first; of all environments if none is named."""
        self.settle()
        kept = [self._kept.get(environment, ())] if environment else self._kept.values()
        mine = (row for rows in kept for owner, row in rows if owner == key)
        return nlargest(SHOWN, mine, key=lambda row: row["ended"])
