"""Agents that need no model: noop, random, gold, replay."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from ors.client import ToolInvocation
from ors.rollouts import (
    Agent,
    AgentMessage,
    Conversation,
    EpisodeRecord,
    Scored,
    TaskRef,
    ToolMessage,
    Usage,
    UserMessage,
)
from ors.rollouts.agents import GoldAgent, NoopAgent, RandomAgent, ReplayAgent
from ors.types import JSONObject, TextBlock, ToolSpec

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"row": {"type": "integer", "minimum": 0, "maximum": 9}, "mark": {"enum": ["x", "o"]}},
    "required": ["row", "mark"],
}
TOOLS = [
    ToolSpec(name="mark", description="", input_schema=SCHEMA),
    ToolSpec(name="wait", description="", input_schema=None),
]


async def played(agent: Agent, talk: Conversation, turns: int) -> list[AgentMessage]:
    """The agent's next replies, with empty results in between."""
    replies = []
    for _ in range(turns):
        reply = await agent.reply(talk, TOOLS)
        replies.append(reply)
        talk.messages += [reply, *(ToolMessage(call.id, call.name, []) for call in reply.calls)]
    return replies


def episode(index: int = 0, sample: int = 0) -> Conversation:
    prompt = UserMessage([TextBlock(text="Go")])
    return Conversation(TaskRef("board", "train", index), sample, [prompt])


async def test_noop_says_nothing() -> None:
    assert await NoopAgent().reply(episode(), TOOLS) == AgentMessage()


async def test_random_calls_fit_the_schemas_and_use_all_tools() -> None:
    calls = [call for reply in await played(RandomAgent(), episode(), 40) for call in reply.calls]
    assert {call.name for call in calls} == {"mark", "wait"}
    assert len({call.id for call in calls}) == 40
    for call in calls:
        Draft202012Validator(SCHEMA if call.name == "mark" else {"maxProperties": 0}).validate(call.input)


async def test_random_is_the_same_for_the_same_seed_task_and_sample_only() -> None:
    again = await played(RandomAgent(1), episode(3, 2), 8)
    assert await played(RandomAgent(1), episode(3, 2), 8) == again
    for agent, talk in (
        (RandomAgent(2), episode(3, 2)),
        (RandomAgent(1), episode(4, 2)),
        (RandomAgent(1), episode(3, 1)),
        (RandomAgent(1), Conversation(TaskRef("other", "train", 3), 2)),
        (RandomAgent(1), Conversation(TaskRef("board", "test", 3), 2)),
        (RandomAgent(1), Conversation(TaskRef("board", spec={"n": 1}), 2)),
    ):
        assert await played(agent, talk, 8) != again


async def test_random_without_tools_ends_the_episode() -> None:
    assert await RandomAgent().reply(episode(), []) == AgentMessage()


def solve(task: JSONObject) -> list[tuple[str, JSONObject]]:
    return [("mark", {"row": task["n"], "mark": "x"}), ("wait", {})]


async def solve_later(task: JSONObject) -> list[tuple[str, JSONObject]]:
    return solve(task)


@pytest.mark.parametrize("solution", [solve, solve_later])
async def test_gold_makes_the_calls_of_the_solution_one_at_a_time(solution: Any) -> None:
    talk = Conversation(TaskRef("board", spec={"n": 4}))
    replies = await played(GoldAgent(solution), talk, 3)
    assert [reply.calls for reply in replies] == [
        (ToolInvocation("mark", {"row": 4, "mark": "x"}, "call_1"),),
        (ToolInvocation("wait", {}, "call_2"),),
        (),
    ]


async def test_gold_solves_an_episode_once_and_many_at_the_same_time() -> None:
    asked: list[object] = []

    def counted(task: JSONObject) -> list[tuple[str, JSONObject]]:
        asked.append(task["n"])
        return solve(task)

    async def spec(task: TaskRef) -> JSONObject:
        return {"n": task.index}

    agent = GoldAgent(counted, spec)
    one, other = episode(1), episode(2)
    for _ in range(3):
        await played(agent, one, 1)
        await played(agent, other, 1)
    assert sorted(map(str, asked)) == ["1", "2"]
    assert [message.calls[0].input["row"] for message in (one.messages[1], other.messages[1])] == [1, 2]  # type: ignore[union-attr]


async def test_gold_says_what_it_lacks() -> None:
    with pytest.raises(ValueError, match="needs the task's spec"):
        await GoldAgent(solve).reply(episode(), TOOLS)
    wrong: tuple[Any, ...] = ("mark", ("mark", 3), ("mark", {}, 1), None)
    for each in wrong:
        agent = GoldAgent(lambda task, each=each: [each])  # type: ignore[misc]
        with pytest.raises(ValueError, match="pairs of a tool's name and its input"):
            await agent.reply(Conversation(TaskRef("board", spec={})), TOOLS)


def record(task: TaskRef, sample: int, *replies: AgentMessage) -> EpisodeRecord:
    between = ToolMessage("call_1", "mark", [])
    messages = [each for reply in replies for each in (reply, between)]
    return EpisodeRecord("0" * 32, task, sample, Scored(), 1.0, (1.0,), tuple(messages))


async def test_replay_repeats_the_replies_of_its_task_and_sample() -> None:
    first = AgentMessage("Hm.", (ToolInvocation("mark", {"row": 1}, "a"),), usage=Usage(5, 5), seconds=2.0)
    second = AgentMessage("Done.")
    whole = TaskRef("board", spec={"n": 1, "m": {"a": 1, "b": 2}})
    agent = ReplayAgent(
        [
            record(episode(0).task, 0, first, second),
            record(episode(0).task, 1, AgentMessage("Sample 1.")),
            record(whole, 0, AgentMessage("Whole.")),
        ]
    )
    replies = await played(agent, episode(0), 3)
    assert replies == [AgentMessage("Hm.", first.calls), second, AgentMessage()]
    assert (await agent.reply(episode(0, 1), TOOLS)).text == "Sample 1."
    again = Conversation(TaskRef("board", spec={"m": {"b": 2, "a": 1}, "n": 1}))
    assert (await agent.reply(again, TOOLS)).text == "Whole."
    with pytest.raises(ValueError, match="no recorded episode of board train/7 is sample 0"):
        await agent.reply(episode(7), TOOLS)
