"""Rollouts that are steered while they run: listed, cancelled, widened, narrowed, watched."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import pytest

import ors.testing
from ors import Server
from ors.client import AsyncORS, ToolInvocation, ToolSpec
from ors.rollouts import AgentMessage, Conversation, EpisodeRecord, Failed, RunningEpisode, Scored, rollouts
from tests.support.eval_environments import Quiz


@pytest.fixture
async def client() -> AsyncIterator[AsyncORS]:
    async with ors.testing.client(Server([Quiz])) as made:
        yield made


class Waiting:
    """Looks around, then waits until it is let go, and submits."""

    def __init__(self) -> None:
        self.waiting = 0
        self.most = 0
        self.changed = asyncio.Condition()
        self.go = asyncio.Event()

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        if len(conversation.messages) == 1:
            return AgentMessage(calls=(ToolInvocation("look", {}),))
        await self._count(1)
        try:
            await self.go.wait()
        finally:
            await self._count(-1)
        return AgentMessage(calls=(ToolInvocation("submit", {"answer": 7 * (conversation.task.index or 0)}),))

    async def _count(self, more: int) -> None:
        async with self.changed:
            self.waiting += more
            self.most = max(self.most, self.waiting)
            self.changed.notify_all()

    async def until(self, count: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.waiting == count)


TASKS = [("train", index) for index in range(6)]


async def test_running_episodes_are_listed_with_stage_and_age(client: AsyncORS) -> None:
    agent = Waiting()
    async with aclosing(
        rollouts(client.environment("quiz"), TASKS, agent, concurrency=3, reward="last")
    ) as records:
        assert records.running == []
        first = asyncio.ensure_future(anext(records))
        await agent.until(3)
        running = records.running
        assert sorted((each.task.index, each.sample, each.stage, each.turns) for each in running) == [
            (index, 0, "model", 1) for index in range(3)
        ]
        ages = [each.seconds for each in running]
        assert ages == sorted(ages, reverse=True)
        assert ages[-1] > 0
        agent.go.set()
        played = [await first, *[each async for each in records]]
        assert {each.id for each in running} <= {each.id for each in played}
        assert records.running == []


async def test_one_episode_is_cancelled_and_the_others_go_on(client: AsyncORS) -> None:
    agent = Waiting()
    async with aclosing(
        rollouts(client.environment("quiz"), TASKS, agent, concurrency=6, retries=2, reward="last")
    ) as records:
        first = asyncio.ensure_future(anext(records))
        await agent.until(6)
        chosen = next(each for each in records.running if each.task.index == 2)
        assert records.cancel(chosen.id)
        cancelled = await first
        assert not records.cancel(chosen.id)
        agent.go.set()
        others = [each async for each in records]
    assert cancelled.id == chosen.id
    assert isinstance(cancelled.outcome, Failed)
    outcome = cancelled.outcome
    assert (outcome.who, outcome.stage, outcome.error) == ("infrastructure", "model", "Cancelled")
    assert (cancelled.reward, cancelled.attempts) == (None, 1)
    assert sorted(each.task.index or 0 for each in others) == [0, 1, 3, 4, 5]
    assert {each.outcome for each in others} == {Scored()}


async def test_concurrency_changes_while_episodes_run(client: AsyncORS) -> None:
    agent = Waiting()
    async with aclosing(
        rollouts(client.environment("quiz"), TASKS * 2, agent, concurrency=1, reward="last")
    ) as records:
        first = asyncio.ensure_future(anext(records))
        await agent.until(1)
        records.concurrency = 4
        await agent.until(4)
        assert len(records.running) == 4
        records.concurrency = 2
        agent.go.set()
        played, at_once = [await first], []
        while (record := await anext(records, None)) is not None:
            played.append(record)
            at_once.append(len(records.running))
        assert len(played) == 12
        assert max(at_once[3:]) <= 2
        with pytest.raises(ValueError, match="at least 1"):
            records.concurrency = 0
    assert agent.most == 4


async def test_callbacks_are_called_at_begin_turn_and_end(client: AsyncORS) -> None:
    agent, told = Waiting(), list[tuple[str, str]]()
    agent.go.set()

    def begun(episode: RunningEpisode) -> None:
        assert (episode.stage, episode.turns) == ("opening", 0)
        told.append(("begin", episode.id))

    def turned(episode: RunningEpisode) -> None:
        told.append((f"turn {episode.turns}", episode.id))

    def ended(record: EpisodeRecord) -> None:
        told.append(("end", record.id))

    how = {"on_begin": begun, "on_turn": turned, "on_end": ended}
    played = rollouts(client.environment("quiz"), TASKS[:2], agent, reward="last", **how)  # type: ignore[arg-type]
    for record in [each async for each in played]:
        mine = [what for what, id in told if id == record.id]
        assert mine == ["begin", "turn 1", "turn 2", "end"]


@pytest.mark.parametrize("which", ["on_begin", "on_turn", "on_end"])
async def test_an_error_in_a_callback_goes_to_the_caller(client: AsyncORS, which: str) -> None:
    agent = Waiting()
    agent.go.set()

    def broken(_: object) -> None:
        raise LookupError("the callback is broken")

    how = {which: broken}
    played = rollouts(client.environment("quiz"), TASKS, agent, reward="last", **how)  # type: ignore[arg-type]
    with pytest.raises(LookupError, match="the callback is broken"):
        _ = [each async for each in played]
