"""Servers that are killed, restarted and slowed down: the outcome is right, and no tool runs twice."""

import asyncio
import json
import os
import signal
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ors.client import AsyncORS, Options, Task
from ors.rollouts import (
    AgentMessage,
    Conversation,
    EpisodeRecord,
    Failed,
    Outcome,
    Unscored,
    Usage,
    UserMessage,
    play,
    rollouts,
)
from ors.types import ToolSpec
from tests.support.raw_http import Raw
from tests.support.scripted_agents import Script, call, calls
from tests.support.server_process import server_elsewhere
from tests.support.waiting import until
from tests.support.worker_command import crew

DONE = AgentMessage("done")
QUICK = Options(
    backoff_seconds=0.01, backoff_limit_seconds=0.2, rejoins=4, retries=3, ping_seconds=0.2, ping_failures=3
)
PATIENT = Options(backoff_seconds=0.05)
TASK = Task("slow", {})


def failed(outcome: Outcome) -> tuple[str, str, str, bool]:
    assert isinstance(outcome, Failed), outcome
    return outcome.who, outcome.stage, outcome.error, outcome.may_have_run


def killed(process: Any) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


async def test_a_server_that_is_not_there_fails_the_opening() -> None:
    with server_elsewhere() as (process, url):
        killed(process)
        async with AsyncORS(url, options=QUICK) as client:
            record = await play(client.environment("slow").session(TASK), Script(DONE), reward="sum")
    assert failed(record.outcome) == ("infrastructure", "opening", "TransportError", False)
    assert (record.reward, record.session) == (None, None)


@pytest.mark.parametrize("parallel", [False, True])
async def test_a_server_killed_in_a_call_leaves_open_whether_it_ran(parallel: bool) -> None:
    with server_elsewhere() as (process, url):
        long = call("wait", seconds=600)
        agent = Script(calls(call("wait", seconds=0)), calls(long, long))
        async with AsyncORS(url, options=QUICK) as client:
            session = client.environment("slow").session(TASK)
            playing = asyncio.create_task(play(session, agent, reward="sum", parallel=parallel))
            await until(lambda: agent.asked == 2)
            await running(url, 2 if parallel else 1)
            killed(process)
            record = await playing
    assert failed(record.outcome)[:2] == ("infrastructure", "call")
    assert failed(record.outcome)[2] in ("CallOutcomeUnknown", "SessionLost")
    assert failed(record.outcome)[3]
    assert (record.reward, len(record.rewards)) == (None, 1)


async def test_a_server_killed_and_restarted_in_a_call_loses_the_session_but_not_the_retry() -> None:
    restarted = False

    async def first(conversation: Conversation) -> AgentMessage:
        return calls(call("wait", seconds=0 if restarted else 600), usage=Usage(10, 1))

    with server_elsewhere() as (process, url):
        async with AsyncORS(url, options=PATIENT) as client:
            records = rollouts(
                client.environment("slow"), [TASK], Script(first, DONE), reward="sum", retries=2
            )
            playing = asyncio.ensure_future(anext(records))
            await running(url, 1)
            killed(process)
            restarted = True
            with server_elsewhere(int(url.rpartition(":")[2])) as (_, again):
                assert again == url
                record = await playing
                assert await sessions(url) == 0
    assert (record.outcome, record.attempts) == (Unscored(), 2)
    assert record.usage == Usage(20, 2)
    (earlier,) = record.earlier
    assert failed(earlier.outcome)[:2] == ("infrastructure", "call")
    assert failed(earlier.outcome)[3]
    assert earlier.session != record.session
    assert [type(message) for message in earlier.messages] == [UserMessage, AgentMessage]


async def test_that_a_call_may_have_run_is_known_after_retries_that_fail_otherwise() -> None:
    with server_elsewhere() as (process, url):
        async with AsyncORS(url, options=QUICK) as client:
            agent = Script(calls(call("wait", seconds=600)))
            records = rollouts(client.environment("slow"), [TASK], agent, reward="sum", retries=2)
            playing = asyncio.ensure_future(anext(records))
            await running(url, 1)
            killed(process)
            record = await playing
    assert record.attempts == 3
    assert [failed(each.outcome)[1::2] for each in record.earlier] == [("call", True), ("opening", False)]
    assert failed(record.outcome)[1::2] == ("opening", True)


async def test_a_server_killed_while_the_agent_thinks_has_run_no_call() -> None:
    with server_elsewhere() as (process, url):
        async with AsyncORS(url, options=QUICK) as client:
            session = client.environment("slow").session(TASK)

            async def think(conversation: Conversation) -> AgentMessage:
                killed(process)
                await until(lambda: not session.kept, "its pings have given up")
                return calls(call("wait", seconds=0))

            record = await play(session, Script(think), reward="sum")
    assert failed(record.outcome) == ("infrastructure", "call", "SessionLost", False)


async def test_a_server_that_is_killed_before_closing_does_not_spoil_an_ended_episode(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with server_elsewhere() as (process, url):

        async def last(conversation: Conversation) -> AgentMessage:
            killed(process)
            return DONE

        async with AsyncORS(url, options=QUICK) as client:
            record = await play(
                client.environment("slow").session(TASK),
                Script(calls(call("wait", seconds=0)), last),
                reward="sum",
            )
    assert record.outcome == Unscored()
    assert "could not be deleted" in caplog.text


async def test_a_server_that_is_stopped_for_a_while_only_takes_longer() -> None:
    with server_elsewhere() as (process, url):

        async def slowed(conversation: Conversation) -> AgentMessage:
            os.kill(process.pid, signal.SIGSTOP)
            asyncio.get_running_loop().call_later(1.0, os.kill, process.pid, signal.SIGCONT)
            return calls(call("wait", seconds=0.01))

        async with AsyncORS(url) as client:
            agent = Script(calls(call("wait", seconds=0)), slowed, DONE)
            tasks = [TASK] * 4
            found = [
                record async for record in rollouts(client.environment("slow"), tasks, agent, reward="sum")
            ]
            assert await sessions(url) == 0
    assert [(record.outcome, record.attempts, len(record.rewards)) for record in found] == [
        (Unscored(), 1, 2)
    ] * 4


@dataclass
class Marker:
    """Makes a few calls an episode, each under a name of its own."""

    made: list[str] = field(default_factory=list)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        if not self.go.is_set():
            self.waiting.set()
            await self.go.wait()
        if sum(isinstance(message, AgentMessage) for message in conversation.messages) == 4:
            return DONE
        self.made.append(f"m{uuid.uuid4().hex}")
        return calls(call("wait", name=self.made[-1], seconds=0.02))


@pytest.mark.parametrize("retries", [0, 5])
async def test_no_tool_runs_twice_when_workers_are_killed(tmp_path: Path, retries: int) -> None:
    marker, found = Marker(), list[EpisodeRecord]()
    marker.go.set()
    with crew(tmp_path, 2) as serving:
        async with AsyncORS(serving.url) as client:
            records = rollouts(
                client.environment("yard"),
                [("train", 0)] * 80,
                marker,
                concurrency=8,
                retries=retries,
                reward="sum",
            )
            async for record in records:
                found.append(record)
                if len(found) in (10, 40):
                    marker.go.clear()
                    marker.waiting.clear()
                    await marker.waiting.wait()  # an episode is open, and goes on after the kill
                    os.kill((await asyncio.to_thread(serving.living))[0], signal.SIGKILL)
                    marker.go.set()
            left = (await asyncio.to_thread(serving.raw.get, "/-/sessions")).json()["total"]
        ran = Counter(name for name in serving.traces() if name.startswith("m"))
    assert max(ran.values()) == 1
    assert left == 0
    outcomes = Counter(record.outcome.type for record in found)
    assert sum(outcomes.values()) == 80
    if retries:
        assert outcomes == {"unscored": 80}
        assert max(record.attempts for record in found) > 1
    else:
        assert {failed(record.outcome)[0] for record in found if record.outcome != Unscored()} == {
            "infrastructure"
        }
        assert {record.attempts for record in found} == {1}


async def running(url: str, count: int) -> None:
    """Waits until so many calls run, or wait for their turn."""

    async def run() -> bool:
        return f"\nors_calls_running {count}.0\n" in await page(url, "/-/metrics")

    await until(run, f"{count} calls run")


async def sessions(url: str) -> int:
    total: int = json.loads(await page(url, "/-/sessions"))["total"]
    return total


async def page(url: str, path: str) -> str:
    return (await asyncio.to_thread(Raw(url).get, path)).body.decode()
