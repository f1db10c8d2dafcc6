"""Episodes whose replies come from the caller."""

import asyncio
import gc

import pytest

from ors.client import ORS, AsyncEnvironment, Task
from ors.rollouts import (
    AgentMessage,
    Failed,
    Scored,
    SteppedEpisode,
    SteppedEpisodeSync,
    ToolMessage,
    Truncated,
    Unscored,
    UserMessage,
)
from tests.rollouts.conftest import Opening
from tests.support.environments import Lab
from tests.support.raw_http import Raw
from tests.support.scripted_agents import STAY, call, calls, reward
from tests.support.waiting import until


async def ended(id: str) -> None:
    """Waits until the session of a task has been torn down."""
    await until(lambda: Lab.counts[f"{id}.teardown"], "the session has ended")


async def test_the_caller_gets_the_prompt_and_the_results_of_each_reply(session: Opening) -> None:
    episode = SteppedEpisode(session(), reward="sum")
    (prompt,) = await episode.start()
    assert isinstance(prompt, UserMessage)
    assert "reward" in {tool.name for tool in episode.tools}
    (first,) = await episode.step(calls(reward(0.25)))
    assert isinstance(first, ToolMessage)
    assert (first.reward, episode.record) == (0.25, None)
    await episode.step(calls(reward(0.5, finished=True)))
    assert episode.record is not None
    assert (episode.record.outcome, episode.record.reward) == (Scored(), 0.75)


async def test_a_refusal_is_a_result_and_the_episode_goes_on(session: Opening) -> None:
    episode = SteppedEpisode(session(), reward="last")
    await episode.start()
    (refused,) = await episode.step(calls(call("refuse", text="no")))
    assert isinstance(refused, ToolMessage)
    assert not refused.ok
    assert episode.record is None
    assert (await episode.stop("enough")).outcome == Truncated("tokens", "enough")


async def test_an_episode_that_cannot_begin_has_a_record_at_once(session: Opening) -> None:
    episode = SteppedEpisode(session(fail="setup"), reward="last")
    await episode.start()
    assert episode.record is not None
    assert isinstance(episode.record.outcome, Failed)
    with pytest.raises(RuntimeError, match="has ended"):
        await episode.step(calls(reward(1.0)))


async def test_a_stopped_episode_keeps_the_rewards_of_its_steps(
    session: Opening, request: pytest.FixtureRequest
) -> None:
    episode = SteppedEpisode(session(), reward="last")
    await episode.start()
    await episode.step(calls(reward(0.5)))
    record = await episode.stop("out of tokens")
    assert (record.outcome, record.reward) == (Truncated("tokens", "out of tokens"), 0.5)
    assert await episode.stop("again") is record
    await ended(request.node.name)


async def test_an_episode_can_be_stopped_before_it_has_begun(session: Opening) -> None:
    episode = SteppedEpisode(session(), reward="last")
    assert isinstance((await episode.stop("too late")).outcome, Truncated)


async def test_a_message_without_a_call_ends_the_episode(session: Opening) -> None:
    episode = SteppedEpisode(session(), reward="last")
    await episode.start()
    assert await episode.step(AgentMessage(text="I give up")) == ()
    assert episode.record is not None
    assert episode.record.outcome == Unscored()


async def test_a_dropped_episode_ends_its_session(session: Opening, request: pytest.FixtureRequest) -> None:
    episode = SteppedEpisode(session(), reward="last")
    await episode.start()
    del episode
    gc.collect()
    await ended(request.node.name)


async def test_cancelling_a_step_ends_the_session(session: Opening, request: pytest.FixtureRequest) -> None:
    episode = SteppedEpisode(session(), reward="last")
    await episode.start()
    step = asyncio.ensure_future(episode.step(STAY))
    held = Lab.gates[f"{request.node.name}.held"]
    assert await asyncio.to_thread(held.wait, 20)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    await ended(request.node.name)


def test_the_same_from_sync_code(raw: Raw) -> None:
    with ORS(raw.url) as client:
        session = client.environment("lab").session(Task("lab", {"id": "stepped-sync"}))
        episode = SteppedEpisodeSync(session, reward="last")
        episode.start()
        episode.step(calls(reward(1.0)))
        assert episode.record is None
        record = episode.stop("the end")
    assert record.reward == 1.0
    assert Lab.counts["stepped-sync.teardown"] == 1


def test_an_episode_from_sync_code_needs_no_client_before_it_starts() -> None:
    with ORS("http://127.0.0.1:9") as client:
        session = client.environment("lab").session(split="train", index=0)
    episode = SteppedEpisodeSync(session, reward="last")
    assert (episode.record, episode.tools) == (None, ())
    with pytest.raises(RuntimeError, match="closed"):
        episode.start()


def test_an_episode_from_sync_code_can_be_stopped_before_it_has_begun(raw: Raw) -> None:
    with ORS(raw.url) as client:
        session = client.environment("lab").session(Task("lab", {"id": "never-begun"}))
        episode = SteppedEpisodeSync(session, reward="last")
        assert isinstance(episode.stop("too late").outcome, Truncated)
    assert Lab.counts["never-begun.teardown"] == 1


def test_sync_code_cannot_reply_before_it_is_asked(raw: Raw) -> None:
    with ORS(raw.url) as client:
        session = client.environment("lab").session(Task("lab", {"id": "too-soon"}))
        episode = SteppedEpisodeSync(session, reward="last")
        with pytest.raises(RuntimeError, match="has not begun"):
            episode.step(calls(reward(1.0)))
        episode.stop("the end")


async def test_an_unknown_reduction_is_an_error(lab: AsyncEnvironment) -> None:
    episode = SteppedEpisode(lab.session(split="train", index=0), reward="mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mean"):
        await episode.start()
