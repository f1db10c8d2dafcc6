"""One episode: what the agent is told, what is called, and what becomes of it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ors.client import AsyncEnvironment, Task, ToolInvocation
from ors.errors import TransportError
from ors.rollouts import (
    AgentMessage,
    ContextExceeded,
    Conversation,
    EpisodeLimits,
    Failed,
    ModelError,
    Scored,
    SystemMessage,
    TaskRef,
    ToolMessage,
    Truncated,
    Unscored,
    Usage,
    UserMessage,
    play,
)
from ors.rollouts.episodes.episode import EpisodeRecord
from ors.rollouts.records import RunInfo, RunWriter, read_run
from ors.types import TextBlock
from tests.rollouts.conftest import Opening
from tests.support.environments import Lab
from tests.support.raw_http import Raw
from tests.support.scripted_agents import Script, call, calls, reward

DONE = AgentMessage("done")


def results(record: EpisodeRecord) -> list[ToolMessage]:
    return [message for message in record.messages if isinstance(message, ToolMessage)]


def roles(record: EpisodeRecord) -> str:
    return " ".join(message.role for message in record.messages)


def open_sessions(raw: Raw) -> set[str]:
    listed = raw.get("/-/sessions?limit=1000").json()["sessions"]
    return {session["sid"] for session in listed}


async def test_calls_run_in_order_until_one_has_finished_the_episode(session: Opening, raw: Raw) -> None:
    agent = Script(calls(reward(0.5)), calls(reward(1.0, finished=True), reward(9.0)))
    record = await play(session(n=7), agent, reward="last", sample=3, agent_name="script", system="Be brief.")
    assert record.outcome == Scored()
    assert (record.reward, record.rewards) == (1.0, (0.5, 1.0))  # what came after the end was not sent
    assert roles(record) == "system user assistant tool assistant tool"
    assert record.messages[0] == SystemMessage("Be brief.")
    assert isinstance(record.messages[1], UserMessage)
    assert isinstance(record.messages[1].blocks[0], TextBlock)
    assert record.messages[1].blocks[0].text == "task 7"
    assert {tool.name for tool in record.tools} == {tool.name for tool in agent.tools} >= {"reward", "hint"}
    assert (record.sample, record.agent, record.attempts, len(record.id)) == (3, "script", 1, 32)
    assert record.task == TaskRef(
        "lab", spec={"id": "test_calls_run_in_order_until_one_has_finished_the_episode", "n": 7}
    )
    assert record.session not in open_sessions(raw)
    first, last = results(record)
    assert (first.name, first.ok, first.finished, last.finished) == ("reward", True, False, True)
    assert first.metadata == {"k": [1, None]}
    assert 0 < first.started < last.started < record.seconds


async def test_a_task_is_named_by_its_split_and_index(lab: AsyncEnvironment) -> None:
    record = await play(lab.session(split="test", index=2), Script(DONE), reward="sum")
    assert record.task == TaskRef("lab", "test", 2)
    assert record.outcome == Unscored()


async def test_without_a_reward_an_ended_episode_is_unscored(session: Opening) -> None:
    record = await play(
        session(), Script(calls(reward(None, finished=True))), reward="sum", truncated_reward=0.0
    )
    assert (record.outcome, record.reward, record.rewards) == (Unscored(), None, (None,))


async def test_a_message_without_a_call_ends_the_episode(session: Opening) -> None:
    record = await play(session(), Script(calls(reward(0.0)), DONE), reward="sum")
    assert (record.outcome, record.reward, roles(record)) == (Scored(), 0.0, "user assistant tool assistant")


async def test_a_message_without_a_call_is_nudged_once(session: Opening) -> None:
    agent = Script(DONE, calls(reward(1.0)), DONE, calls(reward(5.0)))
    record = await play(session(), agent, reward="sum", nudge="Use a tool.")
    assert roles(record) == "user assistant user assistant tool assistant"
    assert record.messages[2] == UserMessage([TextBlock(text="Use a tool.")])
    assert record.reward == 1.0


async def test_a_refusal_goes_to_the_agent_and_the_episode_goes_on(session: Opening) -> None:
    unreadable = ToolInvocation("reward", {}, "c2", error="not valid JSON")
    agent = Script(calls(call("refuse", "c1", text="no"), unreadable, call("unknown", "c3")), DONE)
    record = await play(session(), agent, reward="last")
    assert record.outcome == Unscored()
    assert [(m.call, m.ok, m.reason) for m in results(record)] == [
        ("c1", False, "mood"),
        ("c2", False, "input_validation"),
        ("c3", False, "not_found"),
    ]
    assert results(record)[0].blocks == [TextBlock(text="no")]
    assert results(record)[1].blocks == [TextBlock(text="not valid JSON")]


async def test_calls_of_one_message_run_together_where_asked(session: Opening) -> None:
    both = calls(call("meet", "1", name="a"), call("meet", "2", name="b"))
    record = await play(session(), Script(both, DONE), reward="last", parallel=True)
    assert [(m.call, m.blocks) for m in results(record)] == [
        ("1", [TextBlock(text="met: True")]),
        ("2", [TextBlock(text="met: True")]),
    ]


async def test_of_calls_that_run_together_the_good_results_are_kept_when_one_fails(session: Opening) -> None:
    both = calls(reward(1.0), call("boom", text="bang"), call("refuse", text="no"))
    record = await play(session(), Script(both, DONE), reward="last", parallel=True)
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.who, record.outcome.stage) == ("environment", "call")
    assert (record.reward, record.rewards) == (None, (1.0, None))


async def test_of_calls_that_run_together_those_that_ended_count_when_time_is_up(session: Opening) -> None:
    both = calls(reward(1.0), call("refuse", text="no"), call("stay"))
    limits = EpisodeLimits(seconds=0.5)
    record = await play(session(), Script(both), reward="sum", parallel=True, limits=limits)
    assert isinstance(record.outcome, Truncated)
    assert (record.outcome.limit, record.reward, record.rewards) == ("seconds", 1.0, (1.0, None))
    assert [message.name for message in results(record)] == ["reward", "refuse"]


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (EpisodeLimits(turns=3), "turns"),
        (EpisodeLimits(tokens=66), "tokens"),
        (EpisodeLimits(cost=1.4), "cost"),
    ],
)
async def test_a_limit_truncates_after_the_calls_of_the_turn(
    session: Opening, limits: EpisodeLimits, limit: str
) -> None:
    turn = calls(reward(1.0), usage=Usage(input_tokens=20, output_tokens=2, cost=0.5))
    record = await play(session(), Script(turn), reward="sum", limits=limits, truncated_reward=-1.0)
    assert isinstance(record.outcome, Truncated)
    assert (record.outcome.limit, record.reward, record.rewards) == (limit, 3.0, (1.0, 1.0, 1.0))
    assert record.usage == Usage(60, 6, cost=1.5)


@pytest.mark.parametrize("given", [None, 0.0, -1.5])
async def test_an_agent_that_gives_up_has_the_reward_that_the_caller_says(
    session: Opening, given: float | None
) -> None:
    agent = Script(calls(reward(None)), AgentMessage(text="I give up."))
    record = await play(session(), agent, reward="sum", truncated_reward=7.0, unscored_reward=given)
    assert (record.outcome, record.reward, record.rewards) == (Unscored(), given, (None,))


async def test_a_failed_episode_has_no_reward_whatever_the_caller_says(session: Opening) -> None:
    agent = Script(calls(reward(1.0)), RuntimeError("no model"))
    record = await play(session(), agent, reward="sum", truncated_reward=7.0, unscored_reward=7.0)
    assert isinstance(record.outcome, Failed)
    assert record.reward is None


@pytest.mark.parametrize("given", [None, 0.0, -1.5])
async def test_a_truncated_episode_without_a_reward_has_the_one_that_the_caller_says(
    session: Opening, given: float | None
) -> None:
    agent = Script(calls(reward(None)))
    record = await play(session(), agent, reward="sum", limits=EpisodeLimits(turns=2), truncated_reward=given)
    assert isinstance(record.outcome, Truncated)
    assert (record.reward, record.rewards) == (given, (None, None))


@pytest.mark.parametrize(
    "reply",
    [
        AgentMessage("I thi", stop="length"),
        calls(ToolInvocation("reward", {}, error="cut off"), stop="length"),
        ContextExceeded("too long", status=400),
    ],
)
async def test_output_that_is_cut_off_or_a_full_context_truncates_by_tokens(
    session: Opening, reply: Any
) -> None:
    record = await play(session(), Script(calls(reward(1.0)), reply), reward="sum", nudge="Go on.")
    assert isinstance(record.outcome, Truncated)
    assert (record.outcome.limit, record.reward) == ("tokens", 1.0)


async def test_a_usable_call_of_a_cut_off_message_runs(session: Opening) -> None:
    cut = calls(reward(1.0, finished=True), ToolInvocation("reward", {}, error="cut off"), stop="length")
    record = await play(session(), Script(cut), reward="sum")
    assert (record.outcome, record.reward) == (Scored(), 1.0)


async def test_time_cuts_a_call_short_and_its_session_ends(
    session: Opening, raw: Raw, request: pytest.FixtureRequest
) -> None:
    agent = Script(calls(reward(2.0)), calls(call("stay")))
    record = await play(session(), agent, reward="sum", limits=EpisodeLimits(seconds=0.3))
    assert isinstance(record.outcome, Truncated)
    assert (record.outcome.limit, record.reward) == ("seconds", 2.0)
    assert "'call'" in record.outcome.detail
    assert Lab.gates[f"{request.node.name}.held"].is_set()
    assert record.session not in open_sessions(raw)


async def _hang(conversation: Conversation) -> AgentMessage:
    await asyncio.Event().wait()
    raise AssertionError


async def _hang_and_raise(conversation: Conversation) -> AgentMessage:
    try:
        return await _hang(conversation)
    except asyncio.CancelledError:
        raise ModelError("the request was cancelled") from None


async def _hang_and_reply(conversation: Conversation) -> AgentMessage:
    try:
        return await _hang(conversation)
    except asyncio.CancelledError:
        return calls(reward(9.0))


@pytest.mark.parametrize("reply", [_hang, _hang_and_raise, _hang_and_reply])
async def test_time_cuts_a_model_request_short(session: Opening, raw: Raw, reply: Any) -> None:
    record = await play(session(), Script(reply), reward="sum", limits=EpisodeLimits(seconds=0.05))
    assert isinstance(record.outcome, Truncated)
    assert (record.outcome.limit, record.rewards) == ("seconds", ())
    assert "'model'" in record.outcome.detail
    assert record.session not in open_sessions(raw)


@pytest.mark.parametrize(
    ("reply", "who", "error"),
    [
        (ModelError("overloaded", status=529), "model", "ModelError"),
        (KeyError("a bug"), "agent", "KeyError"),
        (TimeoutError("its own"), "agent", "TimeoutError"),
        (TransportError("not of this session"), "agent", "TransportError"),
        (asyncio.CancelledError("its own"), "agent", "CancelledError"),
    ],
)
async def test_errors_of_the_agent_and_of_its_model_are_told_apart(
    session: Opening, raw: Raw, reply: Any, who: str, error: str
) -> None:
    agent = Script(calls(reward(1.0)), reply)
    record = await play(
        session(), agent, reward="sum", truncated_reward=0.0, limits=EpisodeLimits(seconds=60)
    )
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.who, record.outcome.stage, record.outcome.error) == (who, "model", error)
    assert not record.outcome.may_have_run
    assert (record.reward, record.rewards) == (None, (1.0,))
    assert record.session not in open_sessions(raw)


NOT_REPLIES: dict[str, Any] = {
    "None": None,
    "a text": "text",
    "a dictionary": {"role": "assistant"},
    "a call that is a dictionary": AgentMessage(calls=({"name": "x"},)),  # type: ignore[arg-type]
    "a text that is none": AgentMessage(text=None),  # type: ignore[arg-type]
    "a usage that is none": AgentMessage(usage=None),  # type: ignore[arg-type]
    "half a token": AgentMessage(usage=Usage(input_tokens=0.5)),  # type: ignore[arg-type]
    "an unknown stop": AgentMessage(stop="tired"),  # type: ignore[arg-type]
    "reasoning that is an object": AgentMessage(reasoning=object()),  # type: ignore[arg-type]
    "a call with a numeric id": calls(ToolInvocation("echo", {"text": "x"}, 7)),  # type: ignore[arg-type]
    "a call without an input": calls(ToolInvocation("echo", None, "a")),  # type: ignore[arg-type]
    "a call with a numeric name": calls(ToolInvocation(7, {}, "a")),  # type: ignore[arg-type]
    "an input that JSON cannot express": calls(call("echo", text=object())),
}


@pytest.mark.parametrize("reply", NOT_REPLIES.values(), ids=NOT_REPLIES)
async def test_a_reply_that_is_none_is_a_failure_of_the_agent(
    session: Opening, reply: Any, tmp_path: Path
) -> None:
    async def replied(conversation: Conversation) -> Any:
        return reply

    record = await play(session(), Script(replied), reward="sum")
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.who, record.outcome.stage) == ("agent", "model")
    assert record.rewards == ()
    with RunWriter.create(tmp_path, RunInfo()) as writer:
        writer.append(record)
    assert list(read_run(tmp_path).episodes()) == [record]


@pytest.mark.parametrize("tool", ["boom", "boom_sync"])
async def test_a_tool_that_raises_fails_the_episode_for_its_environment(session: Opening, tool: str) -> None:
    record = await play(session(), Script(calls(reward(1.0), call(tool, text="bang"))), reward="sum")
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.who, record.outcome.stage, record.outcome.error) == (
        "environment",
        "call",
        "ToolFailed",
    )
    assert record.outcome.may_have_run
    assert (record.reward, record.rewards) == (None, (1.0,))


@pytest.mark.parametrize("fail", ["init", "setup"])
async def test_a_setup_that_fails_is_the_environments(session: Opening, raw: Raw, fail: str) -> None:
    agent = Script(DONE)
    record = await play(session(fail=fail), agent, reward="sum", truncated_reward=0.0)
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.who, record.outcome.error) == ("environment", "ServerFailed")
    assert record.outcome.stage in ("opening", "prompt")
    assert (record.reward, agent.asked) == (None, 0)
    assert record.session not in open_sessions(raw)


async def test_a_refusal_to_open_is_the_infrastructures(lab: AsyncEnvironment) -> None:
    for session in (lab.session(split="train", index=99), lab.session(Task("nothing", {}))):
        record = await play(session, Script(DONE), reward="sum")
        assert isinstance(record.outcome, Failed)
        assert (record.outcome.who, record.outcome.stage) == ("infrastructure", "opening")
        assert record.session is None


async def test_rewards_that_reduce_to_no_finite_number_are_a_failure_of_the_environment(
    session: Opening,
) -> None:
    agent = Script(calls(reward(1.7e308), reward(1.7e308)), DONE)
    record = await play(session(), agent, reward="sum")
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.who, record.reward, record.rewards) == ("environment", None, (1.7e308, 1.7e308))
