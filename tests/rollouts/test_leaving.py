"""Leaving early: what was running is cancelled, and its sessions end."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest

from ors import Server
from ors.client import AsyncEnvironment, AsyncORS, Task
from ors.rollouts import Scored, play, rollouts
from tests.rollouts.conftest import Opening
from tests.support.environments import Lab
from tests.support.live_server import serving
from tests.support.raw_http import Raw
from tests.support.scripted_agents import STAY, WIN, Script, Thinker
from tests.support.waiting import until


@pytest.fixture
def raw() -> Iterator[Raw]:
    """A server for each test: they count its sessions."""
    with serving(Server([Lab])) as url:
        yield Raw(url)


def open_sessions(raw: Raw) -> int:
    total: int = raw.get("/-/sessions?environment=lab").json()["total"]
    return total


async def cancelled(playing: "asyncio.Task[Any]") -> None:
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing


@pytest.mark.parametrize("times", [1, 2])
async def test_cancelling_an_episode_in_a_call_ends_its_session(
    session: Opening, raw: Raw, request: pytest.FixtureRequest, times: int
) -> None:
    id = request.node.name
    playing = asyncio.create_task(play(session(), Script(STAY), reward="sum"))
    await until(Lab.gates[f"{id}.held"].is_set)
    for _ in range(times - 1):
        playing.cancel()
        await asyncio.sleep(0)
    await cancelled(playing)
    await until(lambda: open_sessions(raw) == 0 and Lab.counts[f"{id}.teardown"] == 1)


async def test_cancelling_an_episode_while_the_agent_thinks_ends_its_session(
    session: Opening, raw: Raw
) -> None:
    thinker = Thinker()
    playing = asyncio.create_task(play(session(), thinker, reward="sum"))
    await until(lambda: thinker.thinking)
    await cancelled(playing)
    assert open_sessions(raw) == 0


async def test_cancelling_an_episode_while_it_is_set_up_ends_its_session(
    session: Opening, raw: Raw, request: pytest.FixtureRequest
) -> None:
    playing = asyncio.create_task(play(session(setup_gate=True), Script(WIN), reward="sum"))
    await until(lambda: open_sessions(raw) == 1)
    playing.cancel()
    Lab.gates[f"{request.node.name}.setup"].set()
    await cancelled(playing)
    await until(lambda: open_sessions(raw) == 0)


async def test_a_teardown_that_hangs_does_not_hold_up_the_one_who_cancels(
    session: Opening, request: pytest.FixtureRequest
) -> None:
    id = request.node.name
    playing = asyncio.create_task(play(session(hang="teardown"), Script(STAY), reward="sum"))
    await until(Lab.gates[f"{id}.held"].is_set)
    playing.cancel()
    await asyncio.wait({playing}, timeout=10)  # the teardown takes twenty seconds
    assert playing.cancelled()
    Lab.gates[f"{id}.teardown"].set()


async def test_a_record_does_not_wait_for_the_teardown_but_the_end_of_all_does(
    lab: AsyncEnvironment, raw: Raw, request: pytest.FixtureRequest
) -> None:
    id = request.node.name
    records = rollouts(
        lab, [Task("lab", {"id": id, "hang": "teardown"})], Script(WIN), concurrency=1, reward="sum"
    )
    first = asyncio.ensure_future(anext(records))
    await asyncio.wait({first}, timeout=10)  # the teardown takes twenty seconds
    assert first.done()
    assert first.result().outcome == Scored()
    last = asyncio.ensure_future(anext(records, None))
    await lab.list_splits()  # meanwhile, it would have come
    assert not last.done()
    Lab.gates[f"{id}.teardown"].set()
    assert await last is None
    assert open_sessions(raw) == 0


@pytest.mark.parametrize("agent", [Thinker(1), Thinker(1, calls=True)], ids=["thinking", "calling"])
async def test_closing_the_iterator_ends_all_sessions(
    lab: AsyncEnvironment, raw: Raw, agent: Thinker
) -> None:
    tasks = [Task("lab", {"id": "closing"})] * 10
    async with aclosing(rollouts(lab, tasks, agent, concurrency=10, reward="sum")) as records:
        await anext(records)
        await until(lambda: agent.thinking == 9)
        assert open_sessions(raw) == 9
    assert open_sessions(raw) == 0


async def test_breaking_out_of_the_loop_ends_all_sessions_even_if_the_client_is_closed_next(
    raw: Raw,
) -> None:
    async with AsyncORS(raw.url) as client:
        tasks = [("train", 0)] * 10
        async for _ in rollouts(client.environment("lab"), tasks, Thinker(1), reward="sum"):
            await until(lambda: open_sessions(raw) == 9)
            break
    await until(lambda: open_sessions(raw) == 0)


async def test_cancelling_the_consumer_ends_all_sessions(lab: AsyncEnvironment, raw: Raw) -> None:
    thinker = Thinker()

    async def consume() -> None:
        async for _ in rollouts(lab, [("train", 0)] * 10, thinker, reward="sum"):
            pass

    consuming = asyncio.create_task(consume())
    await until(lambda: thinker.thinking == 10)
    await cancelled(consuming)
    assert open_sessions(raw) == 0


async def test_an_error_of_the_tasks_ends_all_sessions(lab: AsyncEnvironment, raw: Raw) -> None:
    thinker = Thinker()

    async def tasks() -> Any:
        yield "train", 0
        yield "train", 0
        await until(lambda: thinker.thinking == 2)
        raise OSError("the list of tasks is gone")

    with pytest.raises(OSError, match="the list of tasks is gone"):
        async for _ in rollouts(lab, tasks(), thinker, reward="sum"):
            pass
    assert open_sessions(raw) == 0
