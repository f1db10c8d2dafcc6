"""Finished calls that a server keeps, within budgets of bytes.

`KeptResults` has those of all sessions for clients that come back, `RecentCalls` the last ones, with their
inputs, for people who look at the server.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ors.server.sessions.calls import Call, Calls

RECORD_BYTES = 400
"""Memory of a result besides its bytes: id, tool, time, and entries in the tables."""
LONG_BYTES = 2**14
READ_BYTES = 8 * 2**20
"""Long results that their clients have read and that are kept all the same.

With hundreds of MB kept, a new result gets pages that the system has to clear first, and that are in no
cache: one of 64 KB to 1 MB takes 30% to 45% more CPU.
"""
AT_ONCE = 2000
"""Results that are removed in one step, which takes a few milliseconds."""


class KeptResult(NamedTuple):
    ending: bytes
    """Its result as JSON, or the `error` event."""
    tool: str
    seconds: float
    key: str | None


_Row = tuple[bytes, str, float, str | None, int]
"""A `KeptResult` and the number of its owner."""
_CELLS = 5
_NO_ROW = (None,) * _CELLS
_FEW = 1000


@dataclass(eq=False, slots=True)
class _Second:
    """The results of one second: rows in one flat list, and where the row of each id begins.

    A busy server keeps half a million. An object for each would make Python's garbage collector run, and
    visit ten thousand of them at a time, which pauses the server for milliseconds. One table of all sessions,
    since each insertion into a large one waits for memory.
    """

    places: dict[str, int] = field(default_factory=dict)
    cells: list[Any] = field(default_factory=list)
    end: int = 0  # of the cells: asking for their number would be one more function a call
    evicted: dict[str, int] = field(default_factory=dict)  # their owners

    def row(self, id: str) -> _Row | None:
        place = self.places.get(id)
        return None if place is None else tuple(self.cells[place : place + _CELLS])

    def pop(self, id: str) -> _Row:
        place = self.places.pop(id)
        row = tuple(self.cells[place : place + _CELLS])
        self.cells[place : place + _CELLS] = _NO_ROW
        if self.end > 2 * _CELLS * (len(self.places) + _FEW):
            self._close_gaps()
        return row

    def _close_gaps(self) -> None:
        old, self.cells = self.cells, []
        for id, place in self.places.items():
            self.places[id] = len(self.cells)
            self.cells += old[place : place + _CELLS]
        self.end = len(self.cells)


class KeptResults:
    """Keeps results for some seconds. Over budget, evicts delivered results first, then the oldest."""

    def __init__(self, seconds: float, budget: int) -> None:
        self._seconds = seconds
        self._budget = budget
        self._by_second: dict[int, _Second] = {}
        self._awaited: set[str] = set()  # not delivered yet
        self._read: deque[tuple[str, int, int]] = deque()  # long results: id, second, size
        self._read_bytes = 0
        self._owners: dict[int, Calls] = {}
        self._numbers = count(1)
        self._second = -1
        self._until = 0  # the end of that second
        self._latest = _Second()
        self._count = 0
        self.bytes = 0

    def __len__(self) -> int:
        return self._count

    @property
    def awaited(self) -> bool:
        """Whether some result was not delivered yet."""
        return bool(self._awaited)

    def add(self, call: "Call", owner: "Calls", ending: bytes) -> int:
        """Keeps the result of a call; returns the second under which it is found."""
        if call.finished_at >= self._until:
            self._begin(int(call.finished_at))
        id, number, size = call.id, owner.owner_number or self._join(owner), len(ending)
        latest = self._latest
        latest.places[id] = latest.end
        latest.end += _CELLS
        latest.cells += (ending, call.tool, call.seconds, call.key, number)
        if call.listener is None:
            self._awaited.add(id)
        self._count += 1
        self.bytes += size + RECORD_BYTES
        if size > LONG_BYTES and owner.alone:
            owner.long = id, size
        if self.bytes > self._budget:
            self._make_room(newest=id)
        return self._second

    def _join(self, owner: "Calls") -> int:
        owner.owner_number = number = next(self._numbers)
        self._owners[number] = owner
        return number

    def leave(self, owner: "Calls") -> None:
        """Forgets an owner that has ended and has removed its results."""
        self._owners.pop(owner.owner_number, None)

    def _begin(self, second: int) -> None:
        self._drop_if_empty(self._second)
        self._second, self._until = second, second + 1
        self._latest = self._by_second[second] = _Second()

    def get(self, id: str, second: int) -> KeptResult | None:
        found = self._by_second.get(second)
        row = None if found is None else found.row(id)
        return None if row is None else KeptResult(*row[:4])

    def missed(self, id: str) -> None:
        """Marks a result as not delivered."""
        self._awaited.add(id)

    def taken(self, id: str) -> None:
        self._awaited.discard(id)

    def read(self, id: str, second: int, size: int) -> None:
        """Marks a long result as read: it is among the first to go."""
        self._read.append((id, second, size))
        self._read_bytes += size
        while self._read_bytes > READ_BYTES:
            id, second, size = self._read.popleft()
            self._read_bytes -= size
            found = self._by_second.get(second)
            if found is not None and id in found.places:
                self._evict(found, id)

    def remove(self, id: str, second: int) -> None:
        found = self._by_second.get(second)
        if found is None:
            return
        if id in found.places:
            self._pop(found, id)
        else:
            found.evicted.pop(id, None)
        if second != self._second:
            self._drop_if_empty(second)

    def _pop(self, found: _Second, id: str) -> tuple[str | None, int]:
        """Removes a result; returns its key and the number of its owner."""
        ending, _, _, key, number = found.pop(id)
        self._awaited.discard(id)
        self._count -= 1
        self.bytes -= len(ending) + RECORD_BYTES
        return key, number

    def _drop_if_empty(self, second: int) -> None:
        found = self._by_second.get(second)
        if found is not None and not found.places and not found.evicted:
            del self._by_second[second]

    def reap(self, now: float) -> bool:
        """Removes expired results, up to `AT_ONCE`; returns whether there may be more."""
        left = AT_ONCE
        for second, found in list(self._by_second.items()):
            if not left or second + 1 + self._seconds > now:
                break
            whole = list(islice(found.places, left))
            for id in whole:
                self._forget(id, *self._pop(found, id))
            evicted = list(islice(found.evicted.items(), left - len(whole)))
            for id, number in evicted:
                del found.evicted[id]
                self._forget(id, None, number)
            left -= len(whole) + len(evicted)
            self._drop_if_empty(second)
        return not left

    def _forget(self, id: str, key: str | None, number: int) -> None:
        owner = self._owners.get(number)
        if owner is not None:  # else its session had ended before this result came
            owner.forget(id, key)

    def _make_room(self, newest: str) -> None:
        for awaited in (False, True):
            for found, id in self._oldest(awaited, newest):
                self._evict(found, id)

    def _evict(self, found: _Second, id: str) -> None:
        key, number = self._pop(found, id)
        found.evicted[id] = number
        if key is not None and number in self._owners:
            self._owners[number].spend(key)

    def _oldest(self, awaited: bool, newest: str) -> list[tuple[_Second, str]]:
        # A little more than needed, so that one walk serves many. The newest is about to be delivered.
        over = self.bytes - self._budget * 0.995
        found: list[tuple[_Second, str]] = []
        for second in self._by_second.values():
            for id, place in second.places.items():
                if over <= 0:
                    return found
                if id != newest and (id in self._awaited) is awaited:
                    found.append((second, id))
                    over -= len(second.cells[place]) + RECORD_BYTES
        return found


# ── For people who look ──────────────────────────────────────────────────────────────────────────

BUDGET_BYTES = 2 * 2**20
"""What all kept calls may take together: a few thousand small ones."""
CALL_BYTES = 500
"""What an entry takes besides its request and its ending."""
MOST_ENDING_BYTES = 2**18
"""A result over this is not kept; its call is."""


class RecentCall(NamedTuple):
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
    ending: bytes | None
    """Its result as JSON, or the `error` event; None if it is too large."""
    size: int
    """The size of the ending."""


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
        ending: bytes,
    ) -> None:
        self.left -= 1
        size = len(ending)
        if size <= MOST_ENDING_BYTES:
            self._newer += (sid, key, id, tool, seconds, finished_at, request, ending, size)
            self._room -= size
        else:
            self._newer += (sid, key, id, tool, seconds, finished_at, request, None, size)
        self._room -= CALL_BYTES + len(request or b"")
        if self._room < 0:
            self._older, self._newer, self._room = self._newer, [], BUDGET_BYTES // 2

    def add_prompt(self, sid: str, key: str, prompt: bytes) -> None:
        self.add(sid, key, "", "", 0.0, inf, None, prompt)

    def prompt(self, sid: str, key: str) -> bytes | None:
        """The prompt of a session of that key, as JSON, if it is kept."""
        return next((each.ending for each in self._entries(sid, key) if not each.id), None)

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
