"""Environments that take the agent's last message."""

from collections.abc import AsyncIterator

import pytest

import ors.testing
from ors import Server
from ors.client import AsyncORS
from ors.rollouts import AgentMessage, Scored, ToolMessage, Truncated, Unscored, play
from tests.support.scripted_agents import Script, call, calls
from tests.support.terminal_environment import Essay, Garden


@pytest.fixture
async def client() -> AsyncIterator[AsyncORS]:
    async with ors.testing.client(Server([Essay, Garden])) as made:
        yield made


async def test_a_message_without_a_call_goes_to_the_terminal_tool_and_is_not_nudged(client: AsyncORS) -> None:
    session = client.environment("essay").session(split="train", index=0)
    record = await play(session, Script(AgentMessage("elppa")), reward="last", nudge="Use a tool.")
    assert (record.outcome, record.reward) == (Scored(), 1.0)
    last = record.messages[-1]
    assert isinstance(last, ToolMessage)
    assert (last.name, last.call, last.finished) == ("grade", None, True)


async def test_a_terminal_tool_that_takes_nothing_ends_the_episode_too(client: AsyncORS) -> None:
    session = client.environment("garden").session(split="train", index=0)
    record = await play(session, Script(calls(call("dig")), AgentMessage("done")), reward="last")
    assert (record.outcome, record.reward, record.rewards) == (Scored(), 1.0, (None, 1.0))


async def test_a_last_message_that_was_cut_off_is_not_graded(client: AsyncORS) -> None:
    session = client.environment("essay").session(split="train", index=0)
    record = await play(session, Script(AgentMessage("elp", stop="length")), reward="last")
    assert isinstance(record.outcome, Truncated)
    assert (record.outcome.limit, record.rewards) == ("tokens", ())


async def test_an_agent_that_says_nothing_is_graded_and_a_model_that_does_is_not(client: AsyncORS) -> None:
    environment = client.environment("essay")
    said = AgentMessage("")  # of the agent's own code: what does the environment give for nothing?
    record = await play(environment.session(split="train", index=0), Script(said), reward="last")
    assert (record.outcome, record.reward) == (Scored(), 0.0)
    empty = AgentMessage("", stop="empty")
    record = await play(environment.session(split="train", index=0), Script(empty), reward="last")
    assert (record.outcome, record.rewards) == (Unscored(), ())
