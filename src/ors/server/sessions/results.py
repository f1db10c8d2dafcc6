"""Keeps finished results of all sessions for clients that come back, within a budget of bytes."""

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple, Protocol

RECORD_BYTES = 400
"""Memory of a result besides its bytes: id, tool, time, and entries in the tables."""
AT_ONCE = 2000
"""Results that are removed in one step, which takes a few milliseconds."""


class KeptResult(NamedTuple):
    """The result of a finished call."""

    events: bytes
    """Its events after `task_id`."""
    tool: str
    seconds: float
    key: str | None


class Ended(Protocol):
    """A finished call."""

    id: str
    tool: str
    seconds: float
    key: str | None
    finished_at: float
    listener: Callable[[], None] | None
    """Set if a client waits for the result."""


class Owner(Protocol):
    """The calls of one session, which find their results by id and second."""

    def spend(self, key: str) -> None:
        """Remembers that the result of a key is gone: the call never runs again."""

    def forget(self, id: str, key: str | None) -> None:
        """Forgets a call whose result has expired."""


class _Second:
    """The results of one second, in tables.

    A busy server keeps half a million, so there is no object for each: Python's garbage collector would visit
    all of them again and again, and pause the server. It skips tables of plain values.
    """

    __slots__ = ("events", "evicted", "keys", "owners", "seconds", "tools")

    def __init__(self) -> None:
        self.owners: dict[str, Owner] = {}
        self.events: dict[str, bytes] = {}
        self.tools: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self.keys: dict[str, str] = {}
        self.evicted: dict[str, Owner] = {}

    def pop(self, id: str) -> tuple[int, str | None]:
        """Removes a result; returns its size and its key."""
        del self.owners[id], self.tools[id], self.seconds[id]
        return len(self.events.pop(id)), self.keys.pop(id, None)


class KeptResults:
    """Keeps results for some seconds. Over budget, evicts delivered results first, then the oldest."""

    def __init__(self, seconds: float, budget: int) -> None:
        self._seconds = seconds
        self._budget = budget
        self._by_second: dict[int, _Second] = {}
        self._awaited: set[str] = set()  # not delivered yet
        self._second = -1
        self._latest = _Second()
        self._count = 0
        self.bytes = 0

    def __len__(self) -> int:
        return self._count

    @property
    def awaited(self) -> bool:
        """Whether some result was not delivered yet."""
        return bool(self._awaited)

    def add(self, call: Ended, owner: Owner, events: bytes) -> int:
        """Keeps the result of a call; returns the second under which it is found."""
        if call.finished_at >= self._second + 1:
            self._begin(int(call.finished_at))
        id, latest = call.id, self._latest
        latest.owners[id] = owner
        latest.events[id] = events
        latest.tools[id] = call.tool
        latest.seconds[id] = call.seconds
        if call.key is not None:
            latest.keys[id] = call.key
        if call.listener is None:
            self._awaited.add(id)
        self._count += 1
        self.bytes += len(events) + RECORD_BYTES
        if self.bytes > self._budget:
            self._make_room(newest=id)
        return self._second

    def _begin(self, second: int) -> None:
        self._drop_if_empty(self._second)
        self._second = second
        self._latest = self._by_second[second] = _Second()

    def get(self, id: str, second: int) -> KeptResult | None:
        """A result, or None if it was evicted."""
        found = self._by_second.get(second)
        if found is None or id not in found.owners:
            return None
        return KeptResult(found.events[id], found.tools[id], found.seconds[id], found.keys.get(id))

    def missed(self, id: str) -> None:
        """Marks a result as not delivered."""
        self._awaited.add(id)

    def taken(self, id: str) -> None:
        """Marks a result as delivered."""
        self._awaited.discard(id)

    def remove(self, id: str, second: int) -> None:
        """Removes a result."""
        found = self._by_second.get(second)
        if found is None:
            return
        if id in found.owners:
            self._pop(found, id)
        else:
            found.evicted.pop(id, None)
        if second != self._second:
            self._drop_if_empty(second)

    def _pop(self, found: _Second, id: str) -> str | None:
        size, key = found.pop(id)
        self._awaited.discard(id)
        self._count -= 1
        self.bytes -= size + RECORD_BYTES
        return key

    def _drop_if_empty(self, second: int) -> None:
        found = self._by_second.get(second)
        if found is not None and not found.owners and not found.evicted:
            del self._by_second[second]

    def reap(self, now: float) -> bool:
        """Removes expired results, up to `AT_ONCE`; returns whether there may be more."""
        left = AT_ONCE
        for second, found in list(self._by_second.items()):
            if not left or second + 1 + self._seconds > now:
                break
            whole = list(islice(found.owners.items(), left))
            for id, owner in whole:
                owner.forget(id, self._pop(found, id))
            evicted = list(islice(found.evicted.items(), left - len(whole)))
            for id, owner in evicted:
                del found.evicted[id]
                owner.forget(id, None)
            left -= len(whole) + len(evicted)
            self._drop_if_empty(second)
        return not left

    def _make_room(self, newest: str) -> None:
        for awaited in (False, True):
            for found, id in self._oldest(awaited, newest):
                owner = found.evicted[id] = found.owners[id]
                key = self._pop(found, id)
                if key is not None:
                    owner.spend(key)

    def _oldest(self, awaited: bool, newest: str) -> list[tuple[_Second, str]]:
        # A little more than needed, so that one walk serves many. The newest is about to be delivered.
        over = self.bytes - self._budget * 0.999
        found: list[tuple[_Second, str]] = []
        for second in self._by_second.values():
            for id, events in second.events.items():
                if over <= 0:
                    return found
                if id != newest and (id in self._awaited) is awaited:
                    found.append((second, id))
                    over -= len(events) + RECORD_BYTES
        return found
