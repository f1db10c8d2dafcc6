"""Finished results of all sessions, kept for clients that come back, within a budget."""

from collections.abc import Iterator
from itertools import chain
from typing import Protocol


class Result(Protocol):
    """A finished call, as far as keeping it goes."""

    finished_at: float
    delivered: bool

    def discard(self) -> None:
        """Lets go of the bytes; the call is still known, and never runs again."""

    def forget(self) -> None:
        """Lets go of everything."""


class Kept:
    """Keeps results for some seconds and up to some bytes; over it, delivered ones go first, oldest first."""

    def __init__(self, seconds: float, budget: int) -> None:
        self._seconds = seconds
        self._budget = budget
        self._results: dict[Result, int] = {}  # with the bytes that each holds, in the order they finished
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._results)

    @property
    def awaited(self) -> bool:
        """Whether there is a result that nobody has taken yet."""
        return any(size and not result.delivered for result, size in self._results.items())

    def add(self, result: Result, size: int) -> None:
        """Keeps a result of `size` bytes from now on."""
        self._results[result] = size
        self.bytes += size
        if self.bytes > self._budget:
            self._make_room(newest=result)

    def remove(self, result: Result) -> None:
        """Keeps it no longer."""
        self.bytes -= self._results.pop(result, 0)

    def reap(self, now: float) -> None:
        """Forgets what has been kept long enough."""
        for result in list(self._results):
            if result.finished_at + self._seconds > now:
                break
            self.remove(result)
            result.forget()

    def _make_room(self, newest: Result) -> None:
        # Down to nine tenths, so that one walk pays for many results. The newest is still on its way out.
        for result in self._in_order_of_worth():
            if self.bytes <= self._budget * 0.9:
                break
            if result is not newest and self._results[result]:
                self.bytes -= self._results[result]
                self._results[result] = 0
                result.discard()

    def _in_order_of_worth(self) -> Iterator[Result]:
        results = list(self._results)
        return chain((r for r in results if r.delivered), (r for r in results if not r.delivered))
