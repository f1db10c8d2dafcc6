"""Finished results of all sessions, kept for clients that come back, within a budget."""

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple, Protocol

RECORD_BYTES = 400
"""What a result takes besides its bytes: its id, its tool, its time, and its places in the tables."""
AT_ONCE = 2000
"""Results that are forgotten in one go: a few milliseconds."""


class KeptResult(NamedTuple):
    """The result of a call that is done."""

    events: bytes
    """Those after `task_id`."""
    tool: str
    seconds: float
    key: str | None


class Ended(Protocol):
    """A call that is done."""

    id: str
    tool: str
    seconds: float
    key: str | None
    finished_at: float
    listener: Callable[[], None] | None
    """Who is about to get its result."""


class Owner(Protocol):
    """The calls of one session, which know their results by these ids and seconds."""

    def spend(self, key: str) -> None:
        """The result of the call with that key was let go of. It is still known, and never runs again."""

    def forget(self, id: str, key: str | None) -> None:
        """Nothing is kept any more."""


class _Second:
    """The results of one second, in tables.

    A busy server keeps half a million, so there is no object for each: Python's collector would look at all
    of them again and again, and nobody would be served meanwhile. A table of plain values it passes over.
    """

    __slots__ = ("discarded", "events", "keys", "owners", "seconds", "tools")

    def __init__(self) -> None:
        self.owners: dict[str, Owner] = {}
        self.events: dict[str, bytes] = {}
        self.tools: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self.keys: dict[str, str] = {}
        self.discarded: dict[str, Owner] = {}

    def pop(self, id: str) -> tuple[int, str | None]:
        """Lets go of one; gives its size and its key."""
        del self.owners[id], self.tools[id], self.seconds[id]
        return len(self.events.pop(id)), self.keys.pop(id, None)


class KeptResults:
    """Keeps results for some seconds and up to some bytes; over it, delivered ones go first, oldest first."""

    def __init__(self, seconds: float, budget: int) -> None:
        self._seconds = seconds
        self._budget = budget
        self._by_second: dict[int, _Second] = {}
        self._awaited: set[str] = set()  # those that nobody has taken yet
        self._second = -1
        self._latest = _Second()
        self._count = 0
        self.bytes = 0

    def __len__(self) -> int:
        return self._count

    @property
    def awaited(self) -> bool:
        """Whether there is a result that nobody has taken yet."""
        return bool(self._awaited)

    def add(self, call: Ended, owner: Owner, events: bytes) -> int:
        """Keeps a call's result from now on; gives the second by which it is found."""
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
        """A result; None if it has been discarded."""
        found = self._by_second.get(second)
        if found is None or id not in found.owners:
            return None
        return KeptResult(found.events[id], found.tools[id], found.seconds[id], found.keys.get(id))

    def missed(self, id: str) -> None:
        """Nobody has taken it yet."""
        self._awaited.add(id)

    def taken(self, id: str) -> None:
        """A client has come back for it."""
        self._awaited.discard(id)

    def remove(self, id: str, second: int) -> None:
        """Keeps it no longer."""
        found = self._by_second.get(second)
        if found is None:
            return
        if id in found.owners:
            self._pop(found, id)
        else:
            found.discarded.pop(id, None)
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
        if found is not None and not found.owners and not found.discarded:
            del self._by_second[second]

    def reap(self, now: float) -> bool:
        """Forgets what has been kept long enough, up to `AT_ONCE`; says whether there is more of it."""
        left = AT_ONCE
        for second, found in list(self._by_second.items()):
            if not left or second + 1 + self._seconds > now:
                break
            whole = list(islice(found.owners.items(), left))
            for id, owner in whole:
                owner.forget(id, self._pop(found, id))
            discarded = list(islice(found.discarded.items(), left - len(whole)))
            for id, owner in discarded:
                del found.discarded[id]
                owner.forget(id, None)
            left -= len(whole) + len(discarded)
            self._drop_if_empty(second)
        return not left

    def _make_room(self, newest: str) -> None:
        for awaited in (False, True):
            for found, id in self._oldest(awaited, newest):
                owner = found.discarded[id] = found.owners[id]
                key = self._pop(found, id)
                if key is not None:
                    owner.spend(key)

    def _oldest(self, awaited: bool, newest: str) -> list[tuple[_Second, str]]:
        # A little more than needed, so that one walk pays for many. The newest is on its way to its client.
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
