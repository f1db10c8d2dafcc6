"""Many episodes at once: which are played, how many at a time, and what is kept of them."""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ors.client import AsyncEnvironment, AsyncORS, Response, Task, Transport, http_transport
from ors.rollouts import (
    AgentMessage,
    Conversation,
    EpisodeLimits,
    EpisodeRecord,
    Failed,
    ModelError,
    Scored,
    TaskKey,
    TaskRef,
    ToolMessage,
    episode_key,
    rollouts,
)
from ors.rollouts.episodes.episode import GivenTask
from ors.types import JSONObject, ToolSpec
from tests.support.raw_http import Raw
from tests.support.scripted_agents import WIN, Script, Thinker, call, calls, reward
from tests.support.waiting import until

TASK = ("train", 0)


class Crowd:
    """Counts the episodes that have begun, and the replies at the same time; each waits for the gate."""

    def __init__(self, *, gate: asyncio.Event | None = None, seconds: float = 0.0) -> None:
        self.began = 0
        self.now = self.most = 0
        self._gate = gate
        self._seconds = seconds

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        self.began += not any(isinstance(message, AgentMessage) for message in conversation.messages)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self._seconds)
        if self._gate is not None:
            await self._gate.wait()
        self.now -= 1
        return WIN


class Silent:
    """A transport to a server that does not list its tasks: it refuses to, or never answers."""

    def __init__(self, inner: Transport, hangs: bool) -> None:
        self._inner = inner
        self._hangs = hangs

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        if path.endswith("/task"):
            if self._hangs:
                await asyncio.Event().wait()
            path = "/nowhere/task"
        return await self._inner.send(method, path, headers, body)

    async def close(self) -> None:
        await self._inner.close()


@pytest.mark.parametrize("listing", ["kept", "refused", "hangs"])
async def test_tasks_are_kept_as_they_are_listed_and_no_episode_fails_for_it(
    listing: str, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ors.rollouts.driver.LISTED_SECONDS", 0.1)
    transport: Any = http_transport(raw.url)
    if listing != "kept":
        transport = Silent(transport, listing == "hangs")
    async with AsyncORS(raw.url, transport=transport) as client:
        env = client.environment("lab")
        whole = Task("lab", {"n": 5})
        tasks: list[GivenTask] = [("train", 2), whole]
        how: dict[str, Any] = {"reward": "sum", "keep_tasks": True}
        found = [record async for record in rollouts(env, tasks, Script(WIN), **how)]
    assert [record.outcome for record in found] == [Scored(), Scored()]
    kept = {record.task.index: record.task for record in found}
    assert kept[2].spec == ({"n": 2, "split": "train"} if listing == "kept" else None)
    assert kept[None] == TaskRef("lab", spec={"n": 5})


async def test_each_task_is_played_so_many_times(lab: AsyncEnvironment) -> None:
    spec = {"id": "whole"}
    tasks: list[GivenTask] = [TASK, TaskRef("lab", "test", 1), Task("lab", spec), TaskRef("lab", spec=spec)]
    found = [record async for record in rollouts(lab, tasks, Script(WIN), samples=3, reward="sum")]
    played = Counter(episode_key(record.task, record.sample) for record in found)
    for sample in range(3):
        assert played.pop((TaskKey("lab", "train", 0, None), sample)) == 1
        assert played.pop((TaskKey("lab", "test", 1, None), sample)) == 1
        assert played.pop(episode_key(TaskRef("lab", spec=spec), sample)) == 2
    assert not played
    assert {(record.outcome, record.reward) for record in found} == {(Scored(), 1.0)}
    assert len({record.id for record in found}) == len({record.session for record in found}) == 12


async def test_all_tasks_are_played_once_before_any_is_played_again(lab: AsyncEnvironment) -> None:
    tasks = [("test", 1), ("train", 0)]
    played = rollouts(lab, tasks, Script(WIN), samples=2, concurrency=1, reward="sum")
    found = [(record.task.index, record.sample) async for record in played]
    assert found == [(1, 0), (0, 0), (1, 1), (0, 1)]
    skip = {episode_key(TaskRef("lab", "test", 1), 0)}
    played = rollouts(lab, tasks, Script(WIN), samples=2, concurrency=1, skip=skip, reward="sum")
    assert [(record.task.index, record.sample) async for record in played] == found[1:]


async def test_tasks_that_may_be_endless_are_each_played_with_all_their_samples(
    lab: AsyncEnvironment,
) -> None:
    tasks = iter([("test", 1), ("train", 0)])
    played = rollouts(lab, tasks, Script(WIN), samples=2, concurrency=1, reward="sum")
    found = [(record.task.index, record.sample) async for record in played]
    assert found == [(1, 0), (1, 1), (0, 0), (0, 1)]


async def test_episodes_that_were_played_before_are_skipped(lab: AsyncEnvironment) -> None:
    spec: JSONObject = {"b": [1, {"y": 1, "x": 2}], "a": 2}
    tasks: list[GivenTask] = [TASK, Task("lab", spec)]
    first = [record async for record in rollouts(lab, tasks, Script(WIN), samples=2, reward="sum")]
    played = {episode_key(record.task, record.sample) for record in first}
    tasks[1] = Task("lab", {"a": 2, "b": [1, {"x": 2, "y": 1}]})
    again = rollouts(lab, tasks, Script(WIN), samples=3, skip=played, reward="sum")
    assert [record.sample async for record in again] == [2, 2]


async def test_endless_tasks_are_taken_as_they_are_needed(lab: AsyncEnvironment) -> None:
    taken = 0

    def endless() -> Iterator[GivenTask]:
        nonlocal taken
        while True:
            taken += 1
            yield TASK

    seen = 0
    records = rollouts(lab, endless(), Script(WIN), concurrency=4, reward="sum")
    async for _ in records:
        seen += 1
        assert taken <= seen + 4
        if seen == 20:
            break
    await records.aclose()


async def test_tasks_may_depend_on_the_records_so_far(lab: AsyncEnvironment) -> None:
    seen: asyncio.Queue[EpisodeRecord] = asyncio.Queue()

    async def curriculum() -> AsyncIterator[GivenTask]:
        yield TASK
        for _ in range(3):
            last = await seen.get()
            yield "train", (last.task.index or 0) + 1

    found = []
    async for record in rollouts(lab, curriculum(), Script(WIN), reward="sum"):
        found.append(record.task.index)
        seen.put_nowait(record)
    assert found == [0, 1, 2, 3]


async def test_as_many_episodes_run_at_once_as_asked(lab: AsyncEnvironment) -> None:
    gate = asyncio.Event()
    crowd = Crowd(gate=gate)
    records = rollouts(lab, [TASK] * 20, crowd, concurrency=5, reward="sum")
    first = asyncio.ensure_future(anext(records))
    await until(lambda: crowd.now == 5)
    gate.set()
    await first
    assert len([record async for record in records]) == 19
    assert (crowd.began, crowd.most) == (20, 5)


async def test_model_requests_have_a_bound_of_their_own(lab: AsyncEnvironment) -> None:
    crowd = Crowd(seconds=0.01)
    records = rollouts(lab, [TASK] * 20, crowd, concurrency=20, model_requests=3, reward="sum")
    assert len([record async for record in records]) == 20
    assert crowd.most == 3


async def test_a_model_request_that_fails_makes_room_for_the_next(lab: AsyncEnvironment) -> None:
    records = rollouts(lab, [TASK] * 5, Script(ModelError("no")), model_requests=1, reward="sum")
    assert len([record async for record in records]) == 5


async def test_waiting_for_other_model_requests_is_not_time_of_the_episode(lab: AsyncEnvironment) -> None:
    crowd = Crowd(seconds=0.5)
    limits = EpisodeLimits(seconds=2.0)  # the last one waits longer than that
    records = rollouts(lab, [TASK] * 6, crowd, model_requests=1, limits=limits, reward="sum")
    assert [record.outcome async for record in records] == [Scored()] * 6


async def test_after_waiting_the_time_goes_on(lab: AsyncEnvironment) -> None:
    gate = asyncio.Event()
    crowd = Crowd(gate=gate)
    limits = EpisodeLimits(seconds=0.3)
    records = rollouts(lab, [TASK] * 2, crowd, model_requests=1, limits=limits, reward="sum")
    async with asyncio.timeout(30):
        assert [record.outcome.type async for record in records] == ["truncated", "truncated"]


async def test_a_slow_consumer_stops_the_episodes(lab: AsyncEnvironment) -> None:
    crowd = Crowd()
    records = rollouts(lab, [TASK] * 100, crowd, concurrency=4, reward="sum")
    for taken in range(1, 4):
        await anext(records)
        await until(lambda: crowd.began == taken + 4)  # noqa: B023
        for _ in range(10):
            await lab.list_splits()  # as long as several episodes take
        assert crowd.began == taken + 4
    await records.aclose()


async def test_several_consumers_share_the_records(lab: AsyncEnvironment) -> None:
    records = rollouts(lab, [TASK] * 20, Script(WIN), concurrency=3, reward="sum")

    async def consumed() -> list[str]:
        return [record.id async for record in records]

    async with asyncio.timeout(30):
        found = await asyncio.gather(*(consumed() for _ in range(4)))
    assert len({id for each in found for id in each}) == sum(map(len, found)) == 20


async def test_closing_wakes_those_who_wait_and_nothing_begins_after_it(lab: AsyncEnvironment) -> None:
    thinker = Thinker()
    records = rollouts(lab, [TASK] * 3, thinker, reward="sum")
    waiting = asyncio.ensure_future(anext(records, None))
    await until(lambda: thinker.thinking == 3)
    await records.aclose()
    async with asyncio.timeout(30):
        assert await waiting is None
    unused = rollouts(lab, [TASK] * 3, thinker, reward="sum")
    await unused.aclose()
    assert await anext(unused, None) is None
    for _ in range(20):
        await lab.list_splits()  # as long as an episode takes to begin
    assert thinker.thinking == 3


async def test_records_are_not_kept(lab: AsyncEnvironment) -> None:
    gc.collect()
    before = {id(each) for each in gc.get_objects() if type(each) is EpisodeRecord}
    seen = most = 0
    async for _ in rollouts(lab, [TASK] * 1000, Script(WIN), concurrency=16, reward="sum"):
        seen += 1
        if seen % 200 == 0:
            records = {id(each) for each in gc.get_objects() if type(each) is EpisodeRecord}
            most = max(most, len(records - before))
    assert seen == 1000
    assert 0 < most <= 17


async def test_a_failed_episode_does_not_disturb_the_others(lab: AsyncEnvironment) -> None:
    tasks = [Task("lab", {"fail": "setup"} if n % 2 else {}) for n in range(10)]
    found = [record async for record in rollouts(lab, tasks, Script(WIN), reward="sum", retries=3)]
    assert Counter(record.outcome.type for record in found) == {"scored": 5, "failed": 5}
    assert {record.attempts for record in found} == {1}  # a setup that raises is not tried again


async def test_a_refusal_that_cannot_change_is_not_tried_again(lab: AsyncEnvironment) -> None:
    (found,) = [
        record async for record in rollouts(lab, [("train", 99)], Script(WIN), reward="sum", retries=3)
    ]
    assert isinstance(found.outcome, Failed)
    assert (found.outcome.who, found.attempts) == ("infrastructure", 1)


async def test_secrets_reach_the_environment(lab: AsyncEnvironment) -> None:
    agent = Script(calls(call("show_secrets")), AgentMessage("done"))
    records = rollouts(lab, [TASK], agent, reward="sum", secrets={"key": "s3cret"})
    (found,) = [record async for record in records]
    assert isinstance(found.messages[2], ToolMessage)
    assert found.messages[2].metadata is not None
    assert found.messages[2].metadata.keys() == {"key"}


async def test_the_time_of_a_reply_is_measured_unless_the_agent_has(lab: AsyncEnvironment) -> None:
    async def slow(conversation: Conversation) -> AgentMessage:
        await asyncio.sleep(0.01)  # a real duration, which is measured
        return replace(WIN, seconds=77.0 if conversation.sample else 0.0)

    records = rollouts(lab, [TASK], Script(slow), samples=2, concurrency=1, reward="sum")
    first, second = [record.messages[1] async for record in records]
    assert isinstance(first, AgentMessage)
    assert isinstance(second, AgentMessage)
    assert 0.01 <= first.seconds < 77.0 == second.seconds


def broken(rewards: Sequence[float]) -> float:
    raise ZeroDivisionError("no mean")


REDUCTIONS: dict[str, Any] = {
    "raises": broken,
    "None": lambda rewards: None,
    "text": lambda rewards: "1.0",
    "not a number": lambda rewards: float("nan"),
    "too large": lambda rewards: 10**400,
}


@pytest.mark.parametrize("how", REDUCTIONS)
async def test_a_reduction_that_fails_is_a_failure_of_its_episode(lab: AsyncEnvironment, how: str) -> None:
    def reduce(rewards: Sequence[float]) -> Any:
        return REDUCTIONS[how](rewards) if rewards[0] > 0 else rewards[0]

    async def either(conversation: Conversation) -> AgentMessage:
        return WIN if conversation.sample % 2 else calls(reward(0.0, finished=True))

    records = [each async for each in rollouts(lab, [TASK], Script(either), samples=6, reward=reduce)]
    assert Counter(each.outcome.type for each in records) == {"scored": 3, "failed": 3}
    for each in records:
        if isinstance(each.outcome, Failed):
            assert (each.outcome.who, each.outcome.stage, each.reward) == ("agent", "closing", None)
            assert each.rewards == (1.0,)


async def test_a_task_that_json_cannot_express_is_a_failure_of_its_episode(lab: AsyncEnvironment) -> None:
    odd: Any = object()
    tasks: list[GivenTask] = [TaskRef("lab", spec={"n": odd}), TASK]
    records = [each async for each in rollouts(lab, tasks, Script(WIN), reward="sum")]
    assert sorted(each.outcome.type for each in records) == ["failed", "scored"]
    (failed,) = (each.outcome for each in records if isinstance(each.outcome, Failed))
    assert (failed.who, failed.stage) == ("agent", "opening")


async def test_a_reply_that_cannot_be_copied_is_a_failure_of_its_episode(lab: AsyncEnvironment) -> None:
    class Odd(AgentMessage):
        def __init__(self) -> None:
            super().__init__("odd")

    async def slow(conversation: Conversation) -> AgentMessage:
        await asyncio.sleep(0.01)  # a real duration: both episodes are open by then
        return Odd() if conversation.sample else WIN

    records = [each async for each in rollouts(lab, [TASK], Script(slow), samples=2, reward="sum")]
    assert sorted(each.outcome.type for each in records) == ["failed", "scored"]


@pytest.mark.parametrize(
    ("task", "error"),
    [
        ("train", TypeError),
        (("train", "0"), TypeError),
        (None, TypeError),
        (TaskRef("lab", "train"), ValueError),
        (TaskRef("other", "train", 0), ValueError),
    ],
)
async def test_what_is_not_a_task_is_an_error(
    lab: AsyncEnvironment, task: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        async for _ in rollouts(lab, [TASK, task], Script(WIN), reward="sum"):
            pass


@pytest.mark.parametrize(
    "wrong",
    [{"samples": 0}, {"concurrency": 0}, {"model_requests": 0}, {"retries": -1}, {"reward": "mean"}],
)
async def test_wrong_arguments_are_refused_at_once(lab: AsyncEnvironment, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        rollouts(lab, [TASK], Script(WIN), **{"reward": "sum", **wrong})


async def test_episodes_share_their_tools_if_they_have_the_same(raw: Raw) -> None:
    tasks = [("train", 0), ("train", 0), ("train", 1)]  # this environment has other tools for other tasks
    async with AsyncORS(raw.url) as client:
        other = client.environment("other")
        agent = Script(AgentMessage(text="done"))
        first, same, different = [
            each async for each in rollouts(other, tasks, agent, concurrency=1, reward="sum")
        ]
    assert first.tools is same.tools
    assert [tool.name for tool in (*first.tools, *different.tools)] == ["always", "pick", "always", "made_up"]
