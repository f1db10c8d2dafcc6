"""The episodes that ended last, for the list of the page."""

import time
from collections import deque
from heapq import nlargest
from typing import Any

from ors.server.admin.task_preview import TaskPreviews
from ors.server.observe.events import EpisodeEnded, Event
from ors.server.runtime import Runtime

KEPT = 100
"""Episodes of each environment that are kept."""
SHOWN = 50


class EndedEpisodes:
    """Keeps the episodes of each environment that ended last, in the form in which they are shown."""

    def __init__(self, runtime: Runtime, previews: TaskPreviews) -> None:
        self._runtime = runtime
        self._previews = previews
        self._kept: dict[str, deque[tuple[str, dict[str, Any]]]] = {}
        self.changes = 0
        """How many episodes have ended."""

    def observe(self, event: Event) -> None:
        """Keeps an episode that has ended."""
        if type(event) is not EpisodeEnded:
            return
        self.changes += 1
        kept = self._kept.get(event.environment)
        if kept is None:
            kept = self._kept[event.environment] = deque(maxlen=KEPT)
        kept.append((event.key, self._row(event)))

    def _row(self, event: EpisodeEnded) -> dict[str, Any]:
        loop = self._runtime.loop
        return {
            "sid": event.sid,
            "environment": event.environment,
            "outcome": event.outcome,
            "reward": None if event.reward is None else round(event.reward, 9),
            "calls": event.calls,
            "ended": round(time.time(), 3),
            "seconds": 0.0 if loop is None else round(loop.time() - event.created, 3),
            "task": self._previews.short(event.task or {}, event.environment, event.key),
        }

    def shown(self, key: str, environment: str) -> list[dict[str, Any]]:
        """The episodes of a key, newest first; of all environments if none is named."""
        kept = [self._kept.get(environment, ())] if environment else self._kept.values()
        mine = (row for rows in kept for owner, row in rows if owner == key)
        return nlargest(SHOWN, mine, key=lambda row: row["ended"])
