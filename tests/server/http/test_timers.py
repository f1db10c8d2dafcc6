"""One timer for many streams, on a loop whose time the test sets."""

from collections.abc import Callable

import pytest

from ors.server.http.streams import IntervalTimer

SECONDS = 40.0


class Loop:
    """As much of an event loop as a timer needs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.soon: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> object:
        return self.call_at(self.now + seconds, callback)

    def call_at(self, when: float, callback: Callable[[], None]) -> object:
        self.timers.append((when, callback))
        return object()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for timer in self.timers if timer[0] <= self.now]
        self.timers = [timer for timer in self.timers if timer not in due]
        for _, callback in due:
            callback()

    def run_ready(self) -> None:
        ready, self.soon = self.soon, []
        for callback in ready:
            callback()


class Clockwork:
    """A timer, its loop, and what it woke."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.woken: list[str] = []
        self.then: Callable[[str], None] = lambda name: None
        self.timer = IntervalTimer[str](SECONDS, self._wake)
        self.timer.loop = self.loop  # type: ignore[assignment]

    def _wake(self, name: str) -> None:
        self.woken.append(name)
        self.then(name)

    def advance(self, seconds: float) -> list[str]:
        """Lets time pass; returns what was woken since."""
        self.woken.clear()
        self.loop.advance(seconds)
        self.loop.run_ready()
        return list(self.woken)


@pytest.fixture
def clockwork() -> Clockwork:
    return Clockwork()


def test_each_is_woken_once_an_interval_after_it_was_added(clockwork: Clockwork) -> None:
    clockwork.timer.add("a")
    assert clockwork.advance(SECONDS - 20) == []
    clockwork.timer.add("b")
    assert clockwork.advance(20) == ["a"]
    assert clockwork.advance(20) == ["b"]
    assert clockwork.advance(10 * SECONDS) == []
    assert clockwork.loop.timers == []


def test_what_is_removed_is_not_woken(clockwork: Clockwork) -> None:
    clockwork.timer.add("a")
    clockwork.timer.add("b")
    clockwork.timer.remove("a")
    clockwork.timer.remove("never added")
    assert clockwork.advance(SECONDS) == ["b"]


def test_what_is_ready_to_run_runs_before_anything_is_woken(clockwork: Clockwork) -> None:
    clockwork.timer.add("a")
    clockwork.loop.soon.append(lambda: clockwork.timer.remove("a"))
    assert clockwork.advance(SECONDS) == []


def test_those_that_were_added_within_a_fortieth_share_one_timer(clockwork: Clockwork) -> None:
    clockwork.timer.add("a")
    clockwork.loop.advance(0.5)
    clockwork.timer.add("b")
    assert len(clockwork.loop.timers) == 1
    assert clockwork.advance(SECONDS - 0.5) == ["a"]
    assert clockwork.advance(0.9) == []
    assert clockwork.advance(0.1) == ["b"]


def test_what_adds_itself_again_when_it_is_woken_is_woken_again(clockwork: Clockwork) -> None:
    clockwork.then = clockwork.timer.add
    clockwork.timer.add("a")
    for _ in range(3):
        assert clockwork.advance(SECONDS) == ["a"]


def test_what_is_removed_by_another_that_is_woken_with_it_is_still_woken(clockwork: Clockwork) -> None:
    # Streams check for themselves whether they are over.
    clockwork.then = lambda name: clockwork.timer.remove("b")
    clockwork.timer.add("a")
    clockwork.timer.add("b")
    assert clockwork.advance(SECONDS) == ["a", "b"]
