"""Prompts and calls of the last episodes, with inputs and results, for people who look at the server."""

from collections.abc import Iterator
from itertools import chain
from math import inf
from typing import NamedTuple

BUDGET_BYTES = 2 * 2**20
"""What all kept calls may take together: a few thousand small ones."""
ENTRY_BYTES = 500
"""What an entry takes besides its request and its events."""
MOST_BYTES = 2**18
"""A request or a result over this is not kept; its call is."""

_Entry = tuple[str, str, str, str, float, float, bytes | None, bytes | None, int]


class RecentCall(NamedTuple):
    """A call that has ended."""

    sid: str
    key: str
    """The name of the API key that owns the session: after its end, another key may take the id."""
    id: str
    tool: str
    seconds: float
    finished_at: float
    """By the clock of the event loop."""
    request: bytes | None
    """The body of the request that made it; None if it is too large."""
    events: bytes | None
    """Its events after `task_id`; None if they are too large."""
    size: int
    """The size of those events."""


class RecentCalls:
    """Keeps calls in two generations: once the newer one has half the budget, the older one is dropped.

    Every call passes here, so an entry is a plain tuple (a named one takes 0.6 µs more), and none is
    evicted by itself.
    """

    def __init__(self) -> None:
        self._older: list[_Entry] = []
        self._newer: list[_Entry] = []
        self._room = BUDGET_BYTES // 2

    def add(
        self,
        sid: str,
        key: str,
        id: str,
        tool: str,
        seconds: float,
        finished_at: float,
        request: bytes | None,
        events: bytes,
    ) -> None:
        kept: bytes | None = events
        size = len(events)
        if size > MOST_BYTES:
            kept = None
            self._room += size
        self._newer.append((sid, key, id, tool, seconds, finished_at, request, kept, size))
        self._room -= ENTRY_BYTES + size + (len(request) if request else 0)
        if self._room < 0:
            self._older, self._newer, self._room = self._newer, [], BUDGET_BYTES // 2

    def add_prompt(self, sid: str, key: str, prompt: bytes) -> None:
        self.add(sid, key, "", "", 0.0, inf, None, prompt)

    def prompt(self, sid: str, key: str) -> bytes | None:
        """The prompt of a session of that key, as JSON, if it is kept."""
        return next((each.events for each in self._entries(sid, key) if not each.id), None)

    def of(self, sid: str, key: str) -> list[RecentCall]:
        """The kept calls of a session of that key, oldest first."""
        return [each for each in self._entries(sid, key) if each.id]

    def _entries(self, sid: str, key: str) -> list[RecentCall]:
        both = chain(self._older, self._newer)
        return [RecentCall._make(each) for each in both if each[0] == sid and each[1] == key]

    def since(self, moment: float) -> Iterator[RecentCall]:
        """The calls that ended after a moment, newest first."""
        for call in map(RecentCall._make, chain(reversed(self._newer), reversed(self._older))):
            if call.finished_at <= moment:
                return
            if call.id:
                yield call
