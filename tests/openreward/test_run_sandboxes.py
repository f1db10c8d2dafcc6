"""Environments written for openreward that use its sandbox, unchanged, under `ors run`."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ors import TextBlock
from ors.client import ORS
from ors.errors import ServerFailed
from tests.support.commands import refused, running

pytestmark = pytest.mark.long
FILE = '''
from openreward import AsyncOpenReward, OpenReward, SandboxBucketConfig, SandboxSettings
from openreward.environments import Environment, Server, TextBlock, ToolOutput, tool, upload_text


class Boxed(Environment):
    def __init__(self, task_spec={}, secrets={}):
        super().__init__(task_spec)
        bucket = SandboxBucketConfig(mount_path="/data", read_only=True, only_dir="split")
        self.settings = SandboxSettings(
            environment="me/boxed", image="localhost:1/python:1", machine_size="0.5:1", bucket_config=bucket
        )
        self.sandbox = AsyncOpenReward(api_key=secrets.get("api_key")).sandbox(self.settings)

    @classmethod
    def list_splits(cls):
        return ["train"]

    @classmethod
    def list_tasks(cls, split):
        return [{"right": open("/orwd_data/split/answer").read()}]

    async def setup(self):
        await self.sandbox.start()
        await upload_text(self.sandbox, "/workspace/double.sh", "cat $1 $1")

    async def teardown(self):
        await self.sandbox.stop()

    def get_prompt(self):
        with OpenReward().sandbox(self.settings) as box:
            return [TextBlock(text=box.run("cat /data/answer").output)]

    @tool
    async def bash(self, params: dict) -> ToolOutput:
        """Runs a command."""
        output, code = await self.sandbox.run(params["command"])
        reward = float(output == 2 * self.task_spec["right"])
        return ToolOutput(blocks=[TextBlock(text=output)], reward=reward, finished=True)


if __name__ == "__main__":
    Server([Boxed]).run()
'''


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the users of sandboxes can enter, which they cannot with pytest's own."""
    with TemporaryDirectory(prefix="ors-data-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        (folder / "server.py").write_text(FILE)
        (folder / "data" / "split").mkdir(parents=True)
        (folder / "data" / "split" / "answer").write_text("four")
        yield folder


def test_an_environment_with_a_sandbox_and_a_bucket_plays_to_its_reward(folder: Path) -> None:
    words = ("run", "server.py", "--port", "0", "--data", "data")
    with running(*words, "--host-root", cwd=folder) as server, ORS(server.url()) as client:
        with client.environment("boxed").session(split="train", index=0) as session:
            assert session.get_prompt() == [TextBlock(text="four")]
            called = session.call_tool("bash", {"params": {"command": "sh double.sh /data/answer"}})
            assert (called.reward, called.finished) == (1.0, True)
        assert server.stop().code == 0


def test_an_image_that_is_not_there_is_named_with_what_to_do(folder: Path) -> None:
    with running("run", "server.py", "--port", "0", "--data", "data", cwd=folder) as server:
        client = ORS(server.url())
        session = client.environment("boxed").session(split="train", index=0)
        told = pytest.raises(ServerFailed, match=r"image localhost:1/python:1: [^$]*--host-root")
        with client, session, told:
            session.get_prompt()
    wrong = refused("sandboxes", "--image", "localhost:1/python:1")
    assert (wrong.code, "expected NAME=PATH" in wrong.err) == (2, True)
