"""Judged environments on real sockets: what clients, records, logs and the agent get."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from ors import Environment, Limits, Server, ToolOutput, tool
from ors.client import AsyncEnvironment, AsyncORS
from ors.errors import ToolCallError, ToolFailed
from ors.judges import Judge
from ors.rollouts import Failed, Scored, ToolMessage, play
from ors.rollouts.records import RunInfo, RunWriter, read_run
from tests.support.commands import run
from tests.support.judging import KEY, held, judging, said, verdict
from tests.support.live_server import serving
from tests.support.scripted_agents import Script, call, calls
from tests.support.scripted_server import Reply, answer

pytestmark = pytest.mark.xdist_group("providers")
SUBMIT = Script(calls(call("submit", text="My answer")))
SECRETS = {"openai_api_key": KEY}


def judged_by(judge: Judge) -> type[Environment]:
    class Judged(Environment):
        tasks = {"train": [{"question": "Why?"}]}

        def get_prompt(self) -> str:
            return str(self.task_spec["question"])

        @tool
        async def submit(self, text: str) -> ToolOutput:
            """Submit it."""
            verdict = await judge.grade(self.get_prompt(), text, secrets=self.secrets)
            return ToolOutput("Noted.", rewards=verdict.rewards, metadata=verdict.metadata, finished=True)

    return Judged


@asynccontextmanager
async def served(judge: Judge, limits: Limits | None = None) -> AsyncIterator[AsyncEnvironment]:
    server = Server([judged_by(judge)], limits=limits or Limits())
    with entered(server) as url:
        async with AsyncORS(url) as client:
            yield client.environment("judged")


@contextmanager
def entered(server: Server) -> Iterator[str]:
    with serving(server) as url:
        yield url


async def test_a_verdict_is_the_reward_and_its_record_is_beside_the_call(tmp_path: Path) -> None:
    async with judging(verdict(1, 2)) as provider, served(provider.judge()) as env:
        record = await play(env.session(split="train", index=0, secrets=SECRETS), SUBMIT, reward="last")
        with RunWriter.create(tmp_path / "run", RunInfo()) as writer:
            writer.append(record)
    assert record.outcome == Scored()
    assert record.reward == pytest.approx(0.8)
    (read,) = read_run(tmp_path / "run").episodes()
    (result,) = (each for each in read.messages if isinstance(each, ToolMessage))
    assert result.metadata is not None
    assert result.metadata["reward_components"] == pytest.approx({"correct": 0.6, "kind": 0.2})
    told = json.dumps(result.metadata["judge"])
    assert all(text in told for text in ("Why?", "My answer", "because", "openai:some-model"))
    shown = run("runs", "show", str(tmp_path / "run"), "0")
    assert "because" in shown.out


async def test_the_agent_sees_nothing_of_the_verdict() -> None:
    async with judging(verdict()) as provider, served(provider.judge()) as env:
        session = env.session(split="train", index=0)
        await play(session, SUBMIT, reward="last")
        assert "because" not in json.dumps(await session.messages("openai-chat"))


async def test_a_judge_that_repeats_its_key_tells_it_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    leaky = verdict().replace("because", f"the key is {KEY}")
    async with (
        judging(f"It is {KEY}", leaky) as provider,
        served(provider.judge()) as env,
        env.session(split="train", index=0, secrets=SECRETS) as session,
    ):
        output = await session.call_tool("submit", {"text": "My answer"})
    assert "the key is ***" in output.model_dump_json()
    assert "cannot be used" in caplog.text
    assert KEY not in output.model_dump_json() + caplog.text


FAILING: dict[str, Reply] = {
    "malformed": said("Full marks!"),
    "refusing": said("No.", stop="refusal"),
    "truncated": said(verdict(), stop="length"),
    "empty": said(" "),
    "out of range": said(verdict(correct=11)),
    "failing": answer({"error": {"message": f"bad key {KEY}"}}, 400),
    "gone": Reply(b"", cut=True),
}


@pytest.mark.parametrize("reply", FAILING.values(), ids=FAILING.keys())
async def test_no_failure_of_a_judge_becomes_a_number(reply: Reply, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with judging(reply) as provider, served(provider.judge(retries=1)) as env:
        record = await play(env.session(split="train", index=0, secrets=SECRETS), SUBMIT, reward="last")
        assert isinstance(record.outcome, Failed)
        assert (record.outcome.who, record.outcome.stage) == ("environment", "call")
        assert (record.reward, [each for each in record.rewards if each is not None]) == (None, [])
        async with env.session(split="train", index=0, secrets=SECRETS) as session:
            with pytest.raises(ToolFailed, match="the judge openai:some-model") as failed:
                await session.call_tool("submit", {"text": "My answer"})
    assert failed.value.reason == "environment"
    assert KEY not in f"{record}{failed.value}{caplog.text}"


@pytest.mark.parametrize("slow", ["judge", "tool"])
async def test_a_slow_judge_is_no_score(slow: str) -> None:
    async with judging(held(verdict(), asyncio.Event())) as provider:
        judge = provider.judge(seconds=0.2 if slow == "judge" else 60)
        async with served(judge, Limits(tool_seconds=None if slow == "judge" else 0.3)) as env:
            record = await play(env.session(split="train", index=0), SUBMIT, reward="last")
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.who, record.reward) == ("environment", None)


async def test_the_end_of_a_session_ends_its_requests_and_frees_their_places() -> None:
    never = held(verdict(), asyncio.Event())
    async with judging(never, verdict()) as provider, served(provider.judge(concurrency=1)) as env:
        async with env.session(split="train", index=0) as session:
            asking = asyncio.create_task(session.call_tool("submit", {"text": "1"}))
            await provider.until_asked_for(1)
        await asyncio.wait([asking])
        record = await play(env.session(split="train", index=0), SUBMIT, reward="last")
    assert record.outcome == Scored()


async def test_an_answer_that_is_too_long_is_the_agents_mistake() -> None:
    async with (
        judging(verdict()) as provider,
        served(provider.judge()) as env,
        env.session(split="train", index=0) as session,
    ):
        with pytest.raises(ToolCallError, match="the limit is 100000"):
            await session.call_tool("submit", {"text": "x" * 200_000})
        assert (await session.call_tool("submit", {"text": "x"})).finished


async def test_the_example_is_short_and_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (Path(__file__).parents[2] / "examples" / "judged.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 25
    from examples.judged import Explain

    said = json.dumps({name: {"reason": "", "score": 1} for name in ("correct", "simple", "short")})
    async with judging(said) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        with entered(Server([Explain])) as url:
            async with AsyncORS(url) as client:
                env = client.environment("explain")
                async with env.session(split="train", index=0, secrets=SECRETS) as session:
                    output = await session.call_tool("submit", {"text": "Water falls from clouds."})
        assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert output.rewards == {"correct": 0.6, "simple": 0.3, "short": 0.1}
    assert output.reward == pytest.approx(1.0)
