"""The lag of an event loop, on a clock of the test's own."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from ors.server.observe.loop_lag import EVERY_SECONDS, SAMPLES, LoopLag


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., None], *args: Any) -> Any:
        self.due.append(lambda: callback(*args))
        return None

    def fire(self, late: float) -> None:
        self.now += EVERY_SECONDS + late
        self.due.pop()()


def test_the_largest_lag_of_half_a_minute_is_told() -> None:
    clock, lag = Clock(), LoopLag()
    lag.start(cast(asyncio.AbstractEventLoop, clock))
    assert lag.seconds == 0
    clock.fire(late=0.5)
    clock.fire(late=0.25)
    assert lag.seconds == 0.5
    for _ in range(SAMPLES - 1):
        clock.fire(late=0.0)
    assert lag.seconds == 0.25
