"""The background loop of the sync client: work of many threads, and its end."""

import asyncio
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest

from ors.client.portal import Ending, Portal

MINE: ContextVar[int] = ContextVar("MINE", default=-1)


async def nothing() -> None:
    """What a portal does last."""


def test_each_of_many_threads_gets_its_own_result_in_its_own_context() -> None:
    portal = Portal(nothing)

    async def own(number: int) -> tuple[int, int]:
        await asyncio.sleep(0)
        return number, MINE.get()

    def many(number: int) -> list[tuple[int, int]]:
        MINE.set(number)
        return [portal.run(lambda: own(number)) for _ in range(50)]

    with ThreadPoolExecutor(40) as threads:
        assert list(threads.map(many, range(40))) == [[(number, number)] * 50 for number in range(40)]
    portal.close()


def test_who_waits_when_the_client_is_closed_is_told() -> None:
    portal, begun = Portal(nothing), threading.Event()

    async def forever() -> None:
        begun.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(portal.run, forever)
        assert begun.wait(10)
        portal.close()
        with pytest.raises(CancelledError):
            waiting.result(10)
    with pytest.raises(RuntimeError, match="make a new one"):
        portal.run(nothing)


def test_work_that_comes_too_late_for_a_loop_that_ends_is_refused() -> None:
    portal = Portal(nothing)
    portal.run(nothing)
    loop = portal._loop
    assert loop is not None
    portal.close()
    portal._closed = False  # a thread that has asked before the end, and comes after it
    portal._inbox._woken = True  # and found that the loop will look anyway
    with pytest.raises(RuntimeError, match="make a new one"):
        portal.run(nothing)


def test_ctrl_c_before_the_loop_is_woken_stops_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    portal = Portal(nothing)
    portal.run(nothing)
    loop = portal._loop
    assert loop is not None
    wake = loop.call_soon_threadsafe
    left = [KeyboardInterrupt]

    def interrupted(*given: Any) -> Any:
        if left:
            raise left.pop()
        return wake(*given)

    monkeypatch.setattr(loop, "call_soon_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        portal.run(lambda: asyncio.sleep(60))
    with ThreadPoolExecutor(1) as threads:  # the next work is not waited for in vain
        threads.submit(portal.run, nothing).result(10)
    portal.close()


def test_an_error_before_the_work_begins_is_the_callers() -> None:
    portal = Portal(nothing)

    def begin(_: object) -> None:
        raise ValueError("not now")

    with pytest.raises(ValueError, match="not now"):
        portal.wait(begin, lambda: None, lambda: None)
    portal.run(nothing)
    portal.close()


def test_work_that_is_cancelled_before_it_has_begun_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    portal, undone = Portal(nothing), threading.Event()
    portal.run(nothing)
    monkeypatch.setattr(Ending, "wait", interrupt_once(Ending.wait))
    with pytest.raises(KeyboardInterrupt):
        portal.run(lambda: asyncio.sleep(60), undo=undone.set)
    assert undone.wait(10)
    portal.close()


def interrupt_once(wait: Any) -> Any:
    left = [KeyboardInterrupt]

    def waiting(ending: Ending, *seconds: float) -> None:
        if left:
            raise left.pop()
        wait(ending, *seconds)

    return waiting
