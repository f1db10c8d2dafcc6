"""Where hosts and routers are, as they say themselves, and what their operators wish."""

import secrets
import time
from dataclasses import dataclass

SILENCE_SECONDS = 5.0
"""Who has not been heard of for this long is left out. Ray itself takes a minute to notice."""


@dataclass(frozen=True, slots=True)
class Row:
    """What is known of a host."""

    slot: int
    incarnation: int
    url: str
    sessions: int
    node: str
    """Ray's id of its node."""
    retiring: bool = False
    """Whether it ends with its last session."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was asked for by command: so many hosts, and none on some nodes."""

    hosts: tuple[int, int] | None = None
    """At least and at most."""
    drained: frozenset[str] = frozenset()
    """Nodes whose sessions may end, and which get no new ones."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where hosts are."""

    urls: tuple[str, ...]
    all: bool
    """Whether there are no others. A directory that has just started has not heard of all yet."""


class Directory:
    """It is never on the way of a request, and may be lost: all that it knows is told again."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._life = secrets.token_hex(8)
        self._rows: dict[int, tuple[float, Row]] = {}
        self._fronts: dict[str, tuple[float, str]] = {}
        self._wishes = Wishes()

    def beat(self, row: Row) -> Places:
        """A host lives; it is told where all hosts are."""
        known = self._rows.get(row.slot)
        if known is None or known[1].incarnation <= row.incarnation:
            self._rows[row.slot] = (time.monotonic(), row)
        return self._places()

    def beat_front(self, node: str, url: str) -> Places:
        """A router lives; it is told where all hosts are."""
        self._fronts[node] = (time.monotonic(), url)
        return self._places()

    def _places(self) -> Places:
        urls = tuple(row.url for row in self.rows())
        return Places(urls, time.monotonic() - self._began > SILENCE_SECONDS)

    def rows(self) -> list[Row]:
        """The hosts that have been heard of lately."""
        since = time.monotonic() - SILENCE_SECONDS
        return [row for _, (at, row) in sorted(self._rows.items()) if at >= since]

    def fronts(self) -> dict[str, str]:
        """The routers that have been heard of lately, by node."""
        since = time.monotonic() - SILENCE_SECONDS
        return {node: url for node, (at, url) in self._fronts.items() if at >= since}

    def forget(self, slot: int) -> None:
        """A host is no more."""
        self._rows.pop(slot, None)

    def wish(self, least: int, most: int) -> None:
        """So many hosts, from now on."""
        self._wishes = Wishes((least, most), self._wishes.drained)

    def drain(self, node: str) -> None:
        """No hosts on that node, from now on."""
        self._wishes = Wishes(self._wishes.hosts, self._wishes.drained | {node})

    def undrain(self, node: str) -> None:
        """Hosts may be there again."""
        self._wishes = Wishes(self._wishes.hosts, self._wishes.drained - {node})

    def look(self) -> tuple[list[Row], Wishes, str]:
        """Everything that whoever places hosts needs to know, and which life of the directory this is."""
        return self.rows(), self._wishes, self._life

    def remember(self, wishes: Wishes) -> None:
        """What was wished for in an earlier life, unless something else was since."""
        self._wishes = Wishes(self._wishes.hosts or wishes.hosts, self._wishes.drained | wishes.drained)
