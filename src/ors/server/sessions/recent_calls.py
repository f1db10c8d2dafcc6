"""Prompts and calls of the last episodes, with inputs and results, for people who look at the server."""

from collections.abc import Iterator
from math import inf
from typing import Any, NamedTuple

BUDGET_BYTES = 2 * 2**20
"""What all kept calls may take together: a few thousand small ones."""
ENTRY_BYTES = 500
"""What an entry takes besides its request and its events."""
MOST_BYTES = 2**18
"""A result over this is not kept; its call is."""


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


MOST_A_SECOND = 2000
"""Calls of one second that are kept: nobody can look at more, and keeping one takes 2% of its time."""

_FIELDS = len(RecentCall._fields)


class RecentCalls:
    """Keeps calls in two generations: once the newer one has half the budget, the older one is dropped.

    Every call passes here. So a generation is one flat list, without an object for each call, and no call is
    evicted by itself.
    """

    def __init__(self) -> None:
        self._older: list[Any] = []
        self._newer: list[Any] = []
        self._room = BUDGET_BYTES // 2
        self.left = MOST_A_SECOND
        """How many more calls of this second are kept."""

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
        self.left -= 1
        size = len(events)
        if size <= MOST_BYTES:
            self._newer += (sid, key, id, tool, seconds, finished_at, request, events, size)
            self._room -= size
        else:
            self._newer += (sid, key, id, tool, seconds, finished_at, request, None, size)
        self._room -= ENTRY_BYTES + len(request or b"")
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
        return [
            RecentCall._make(part[at : at + _FIELDS])
            for part in (self._older, self._newer)
            for at in range(0, len(part), _FIELDS)
            if part[at] == sid and part[at + 1] == key
        ]

    def since(self, moment: float) -> Iterator[RecentCall]:
        """The calls that ended after a moment, newest first."""
        for part in (self._newer, self._older):
            for at in range(len(part) - _FIELDS, -1, -_FIELDS):
                call = RecentCall._make(part[at : at + _FIELDS])
                if call.finished_at <= moment:
                    return
                if call.id:
                    yield call
