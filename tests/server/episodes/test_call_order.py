"""The order of calls, without a server."""

import asyncio

import pytest

from ors.server.episodes.author_code import CallOrder


async def test_calls_run_in_their_order_and_concurrent_ones_together() -> None:
    order, ran = CallOrder(), list[str]()
    assert order.enter_at_once(alone=True)

    async def enter(name: str, alone: bool) -> None:
        await order.enter(alone)
        ran.append(name)

    given = (("a", False), ("b", False), ("c", True), ("d", False))
    waiting = [asyncio.create_task(enter(name, alone)) for name, alone in given]
    await asyncio.sleep(0)
    assert not order.enter_at_once(alone=False)
    order.leave()
    await asyncio.wait(waiting[:2])
    assert ran == ["a", "b"]
    order.leave()
    await asyncio.sleep(0)
    assert ran == ["a", "b"]
    order.leave()
    await waiting[2]
    assert ran == ["a", "b", "c"]
    order.leave()
    await waiting[3]
    assert ran == ["a", "b", "c", "d"]


@pytest.mark.parametrize("granted", [False, True])
async def test_a_cancelled_call_gives_its_turn_to_the_next(granted: bool) -> None:
    order = CallOrder()
    await order.enter(alone=True)
    first = asyncio.create_task(order.enter(alone=True))
    second = asyncio.create_task(order.enter(alone=True))
    await asyncio.sleep(0)
    if granted:
        order.leave()
    first.cancel()
    await asyncio.wait({first})
    assert first.cancelled()
    if not granted:
        order.leave()
    await asyncio.wait_for(second, 10)
