"""Awaits that another task interrupts."""

import asyncio
import gc
import weakref

import pytest

from ors.client.requests.keepalive import Interruptible
from ors.errors import SessionLost


class Payload:
    """Stands for data in a frame of the interrupted await."""


async def wait(waiting: Interruptible, began: asyncio.Event, held: object = None) -> None:
    with waiting:
        began.set()
        await asyncio.Event().wait()


async def test_an_interrupted_await_raises_the_error_and_its_task_goes_on() -> None:
    waiting, began = Interruptible(), asyncio.Event()

    async def interrupted_then_done() -> str:
        with pytest.raises(SessionLost, match="gone"):
            await wait(waiting, began)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)
        return "done"

    task = asyncio.create_task(interrupted_then_done())
    await began.wait()
    waiting.interrupt(SessionLost("gone"))
    waiting.interrupt(SessionLost("a second time"))
    assert await task == "done"


async def test_a_cancellation_by_the_caller_wins_over_an_interruption() -> None:
    waiting, began = Interruptible(), asyncio.Event()
    task = asyncio.create_task(wait(waiting, began))
    await began.wait()
    waiting.interrupt(SessionLost("gone"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_interruption_outside_of_the_block_does_nothing() -> None:
    waiting = Interruptible()
    waiting.interrupt(SessionLost("too early"))
    with waiting:
        await asyncio.sleep(0)
    waiting.interrupt(SessionLost("too late"))
    with waiting:
        await asyncio.sleep(0)


async def test_data_of_an_interrupted_await_is_freed_without_the_garbage_collector() -> None:
    waiting, began, payload = Interruptible(), asyncio.Event(), Payload()
    freed = weakref.ref(payload)
    task = asyncio.create_task(wait(waiting, began, payload))
    del payload
    await began.wait()
    gc.collect()
    gc.disable()
    try:
        waiting.interrupt(SessionLost("gone"))
        await asyncio.wait({task})
        assert isinstance(task.exception(), SessionLost)
        del task
        assert freed() is None
    finally:
        gc.enable()
