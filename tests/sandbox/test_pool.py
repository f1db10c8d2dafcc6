"""The pool: warm sandboxes, a limit, and a fair line."""

import asyncio
import os
import signal

import pytest

from ors.sandbox import Pool, SandboxDead, SandboxLimit, SandboxSpec
from tests.support.waiting import until

SPEC = SandboxSpec(backend="bwrap")


async def test_a_warm_sandbox_is_there_at_once_and_is_replaced() -> None:
    async with Pool(SPEC, limit=4, warm=2) as pool:
        before = set(pool.ready)
        box = await pool.take()
        assert box in before
        await until(lambda: len(pool.ready) == 2, "another one is warm")
        assert pool.open == 1
        await box.close()
        assert pool.open == 0


async def test_no_sandbox_is_used_twice() -> None:
    async with Pool(SPEC, limit=1, warm=1) as pool:
        async with await pool.take() as first:
            await first.write_file("mine", b"")
        async with await pool.take() as second:
            assert second is not first
            assert (await second.exec("ls")).stdout == b""


async def test_the_rest_wait_in_the_order_in_which_they_came() -> None:
    async with Pool(SPEC, limit=1, warm=0) as pool:
        first = await pool.take()
        order: list[int] = []

        async def come(number: int) -> None:
            async with await pool.take():
                order.append(number)

        waiting = [asyncio.ensure_future(come(number)) for number in range(4)]
        await until(lambda: pool.waiting == 4)
        assert pool.open == 1
        await first.close()
        await asyncio.gather(*waiting)
        assert order == [0, 1, 2, 3]


async def test_who_waits_too_long_is_told() -> None:
    async with Pool(SPEC, limit=1, warm=0, wait_seconds=0.05) as pool:
        async with await pool.take():
            with pytest.raises(SandboxLimit, match="1 are in use") as caught:
                await pool.take()
        assert caught.value.reason == "waiting"
        async with await pool.take() as box:
            assert (await box.exec(["true"])).returncode == 0


async def test_who_leaves_the_line_takes_no_place() -> None:
    async with Pool(SPEC, limit=1, warm=0) as pool:
        first = await pool.take()
        gone = asyncio.ensure_future(pool.take())
        await until(lambda: pool.waiting)
        gone.cancel()
        await first.close()
        async with asyncio.timeout(20), await pool.take():
            assert pool.open == 1


async def test_a_dead_sandbox_gives_its_place_back() -> None:
    async with Pool(SPEC, limit=1, warm=0) as pool:
        box = await pool.take()
        os.kill(box.cell.pid, signal.SIGKILL)
        async with asyncio.timeout(20), await pool.take() as next_one:
            assert (await next_one.exec(["true"])).returncode == 0


async def test_a_warm_sandbox_that_died_is_not_given_out() -> None:
    async with Pool(SPEC, limit=2, warm=1) as pool:
        (dead,) = pool.ready
        os.kill(dead.cell.pid, signal.SIGKILL)
        await dead.cell.gone
        async with await pool.take() as box:
            assert (await box.exec(["true"])).returncode == 0


async def test_the_end_of_a_pool_ends_all_its_sandboxes() -> None:
    async with Pool(SPEC, limit=4, warm=2) as pool:
        box = await pool.take()
    with pytest.raises(SandboxDead):
        await box.exec(["true"])
    with pytest.raises(SandboxDead, match="pool is closed"):
        await pool.take()


def test_a_pool_without_places_is_refused() -> None:
    with pytest.raises(ValueError, match="limit must be over 0"):
        Pool(limit=0)
