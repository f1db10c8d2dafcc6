"""Places on a full server: first come, first served, and only the first in the line asks."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from ors import Environment, JSONObject, Limits, Server, TextBlock, ToolOutput, tool
from ors.client import AsyncEnvironment, AsyncORS, Options, ToolInvocation
from ors.client.requests.retry import RetryInLine, WaitingLine
from ors.errors import Unavailable
from ors.rollouts import AgentMessage, rollouts
from tests.support.live_server import serving
from tests.support.scripted_server import answer, scripted
from tests.support.waiting import until

SESSIONS = 2
FULL = answer({"detail": "full"}, 429, {"Retry-After": "0", "ORS-Reason": "limit"})


class Small(Environment):
    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"n": n} for n in range(100)]

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text="end")]

    @tool
    def end(self) -> ToolOutput:
        """End."""
        return ToolOutput(blocks=[], reward=1.0, finished=True)


class Large(Small):
    pass


@pytest.fixture
def url() -> Iterator[str]:
    with serving(Server([Small, Large], limits=Limits(sessions_per_environment=SESSIONS))) as url:
        yield url


async def opened(env: AsyncEnvironment, index: int, order: list[int] | None = None) -> None:
    """A session that is open for a moment."""
    async with env.session(split="train", index=index) as session:
        if order is not None:
            order.append(index)
        await session.call_tool("end")


async def test_places_are_given_in_the_order_of_asking(url: str) -> None:
    order: list[int] = []
    async with AsyncORS(url) as client:
        small = client.environment("small")
        holders = [await small.session(split="train", index=n).start() for n in range(SESSIONS)]
        waiting = []
        for index in range(20):
            waiting.append(asyncio.create_task(opened(small, index, order)))
            await until(lambda: small.client.lines["small"].waiting > index)  # noqa: B023
        await holders[0].close()
        await asyncio.gather(*waiting)
        assert order == sorted(order)
        assert small.client.lines["small"].waiting == 0
        await holders[1].close()


async def test_a_full_environment_holds_no_other_up(url: str) -> None:
    async with AsyncORS(url) as client:
        small, large = client.environment("small"), client.environment("large")
        holders = [await small.session(split="train", index=n).start() for n in range(SESSIONS)]
        waiting = asyncio.create_task(opened(small, 3))
        await until(lambda: small.client.lines["small"].waiting)
        await asyncio.gather(opened(large, 0), opened(large, 1))
        assert not waiting.done()
        for holder in holders:
            await holder.close()
        await waiting


async def test_only_the_first_in_the_line_asks_the_server() -> None:
    quick = Options(backoff_seconds=0.01, backoff_limit_seconds=0.01)
    async with scripted() as script, AsyncORS(script.url, options=quick) as client:
        script.on("/create", FULL)
        env = client.environment("env")
        starts = [asyncio.create_task(env.session(split="train", index=n).start()) for n in range(20)]
        await script.until_asked("/create", 40)
        asked = Counter(request.json()["index"] for request in script.asked("/create"))
        assert [count for count in asked.values() if count > 1] == [asked.total() - len(asked) + 1]
        script.on("/create", answer({"sid": "s1"}))
        for session in await asyncio.gather(*starts):
            await session.close()


@pytest.mark.parametrize("moves", [True, False])
async def test_who_waits_longer_than_the_time_limit_gives_up_only_if_the_line_stands(moves: bool) -> None:
    line = WaitingLine()
    await line.turn.acquire()
    line.waiting += 1
    turn = RetryInLine(Options(request_seconds=0.01), line)
    made = asyncio.create_task(turn.run(lambda: asyncio.sleep(0, "made")))
    await until(lambda: asyncio.get_running_loop().time() > turn.deadline)
    line.refusal = None if moves else Unavailable("full", retry_after=1, reason="limit")
    line.turn.release()
    if moves:
        assert await made == "made"
    else:
        with pytest.raises(Unavailable, match="full"):
            await made


async def test_a_line_that_does_not_move_is_given_up_by_all_at_once() -> None:
    limited = Options(request_seconds=1.5, backoff_seconds=0.005, backoff_limit_seconds=0.005)
    async with scripted() as script, AsyncORS(script.url, options=limited) as client:
        script.on("/create", FULL)
        env = client.environment("env")
        starts = [env.session(split="train", index=n).start() for n in range(8)]
        ended = await asyncio.gather(*starts, return_exceptions=True)
        assert [type(each) for each in ended] == [Unavailable] * 8
        assert len(script.asked("/create")) < 800  # not 1.5 s for each of them


async def test_no_episode_of_a_run_starves_at_the_session_limit(url: str) -> None:
    class Agent:
        async def reply(self, conversation: object, tools: object) -> AgentMessage:
            return AgentMessage("", (ToolInvocation("end", {}, "1"),))

    async with AsyncORS(url, options=Options(request_seconds=5)) as client:
        small = client.environment("small")
        tasks = [("train", n) for n in range(60)]
        order = [
            int(record.task.index or 0)
            async for record in rollouts(small, tasks, Agent(), concurrency=20, reward="sum")
            if record.reward == 1.0
        ]
    assert sorted(order) == list(range(60))
    assert max(abs(place - index) for place, index in enumerate(order)) <= 20
