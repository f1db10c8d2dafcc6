"""Secrets of sessions are in no record, however an environment returns them; agents see them."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from ors import Blocks, Environment, ImageBlock, JSONObject, Server, TextBlock, ToolError, ToolOutput, tool
from ors.client import AsyncORS
from ors.rollouts import AgentMessage, Conversation, Failed, ToolMessage, play, rollouts
from ors.rollouts.records import RunInfo, RunWriter, read_run
from ors.rollouts.regression import replay
from tests.support.live_server import serving
from tests.support.scripted_agents import Script, call, calls

SECRET = 'hush-9"never/told'
TASK = ("train", 0)


class Leak(Environment):
    """Tells its secret wherever it can."""

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{}]

    def get_prompt(self) -> Blocks:
        return [TextBlock(text=f"The secret is {self.secrets['key']}.")]

    @tool
    def tell(self) -> ToolOutput:
        """Tells it in text, in an image, in what is kept apart, and in metadata."""
        secret = self.secrets["key"]
        image = base64.b64encode(secret.encode()).decode()
        blocks: Blocks = [
            TextBlock(text=secret, detail={secret: secret}),
            TextBlock(text="long " * 20_000 + secret),
            ImageBlock(data=image, mimeType="image/png"),
        ]
        return ToolOutput(blocks=blocks, reward=1.0, metadata={"all": [secret]})

    @tool
    def refuse(self) -> ToolOutput:
        """Refuses with it."""
        raise ToolError(f"not {self.secrets['key']}")


@pytest.fixture
def url() -> Iterator[str]:
    with serving(Server([Leak])) as address:
        yield address


def written(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def repeated(conversation: Conversation) -> AgentMessage:
    """Says what it was told: agents see secrets."""
    told = next(each for each in conversation.messages if isinstance(each, ToolMessage))
    assert isinstance(told.blocks[0], TextBlock)
    assert told.blocks[0].text == SECRET
    return AgentMessage(f"It is {SECRET}", (call("refuse", "2", **{SECRET: [SECRET]}),), reasoning=SECRET)


async def fails(conversation: Conversation) -> AgentMessage:
    raise RuntimeError(f"I will not tell {SECRET}")


@pytest.mark.parametrize("last", [AgentMessage(SECRET), fails])
async def test_a_secret_is_nowhere_in_the_run(url: str, tmp_path: Path, last: object) -> None:
    agent = Script(calls(call("tell", "1")), repeated, last)  # type: ignore[arg-type]
    async with AsyncORS(url) as client:
        env = client.environment("leak")
        with RunWriter.create(tmp_path / "run", RunInfo()) as writer:
            async for record in rollouts(env, [TASK], agent, reward="sum", secrets={"key": SECRET}):
                writer.append(record)
            session = env.session(split="train", index=0, secrets={"key": SECRET})
            writer.append(await play(session, agent, sample=1, reward="sum"))
        found = list(read_run(tmp_path / "run").episodes())
        again, _ = await replay(env, found[0], {"key": SECRET})
    assert [each.rewards for each in found] == [(1.0, None)] * 2
    assert b"***" in written(tmp_path)
    for spelled in (b"hush", b"never", base64.b64encode(SECRET.encode())[:12]):
        assert spelled not in written(tmp_path)
    assert "never" not in repr(again), "a replay does not tell it either"
    assert again == [], "and finds what was recorded"
    if last is fails:
        assert isinstance(found[0].outcome, Failed)
        assert found[0].outcome.message == "I will not tell ***"


WORDS = ("user", "tool", "text", "type", "image", "train", "leak", "scored", "tell", "blocks", "output")


@pytest.mark.parametrize("secret", WORDS)
async def test_a_secret_that_is_a_word_of_ours_does_not_spoil_the_record(
    url: str, tmp_path: Path, secret: str
) -> None:
    async with AsyncORS(url) as client:
        env = client.environment("leak")
        agent = Script(calls(call("tell", "1")), AgentMessage("done"))
        with RunWriter.create(tmp_path / "run", RunInfo()) as writer:
            async for record in rollouts(env, [TASK], agent, reward="sum", secrets={"key": secret}):
                writer.append(record)
        (found,) = read_run(tmp_path / "run").episodes()
        assert (found.task.environment, found.task.split, found.reward) == ("leak", "train", 1.0)
        assert (await replay(env, found, {"key": secret}))[0] == []
