"""The episodes that ended last, for the list of the page."""

import time
from collections import deque
from heapq import nlargest
from typing import Any

from ors.server.admin.task_preview import TaskPreviews
from ors.server.observe.events import EpisodeEnded
from ors.server.runtime import Runtime

KEPT = 100
"""Episodes of each environment that are kept."""
SHOWN = 50


class EndedEpisodes:
    """Keeps the episodes of each environment that ended last.

    Their rows are made when somebody looks, or by `settle`: a busy server ends thousands in a second.
    """

    def __init__(self, runtime: Runtime, previews: TaskPreviews) -> None:
        self._runtime = runtime
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
        loop = self._runtime.loop
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
