"""An environment to train on, with every way in which an episode can fail. As a script, its server."""

import base64
import struct
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from ors import Environment, ImageBlock, Server, TextBlock, ToolError, ToolOutput, terminal, tool
from ors.types import Blocks, JSONObject


def png() -> str:
    """A red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    pixel = chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + header + pixel + chunk(b"IEND", b"")).decode()


class Hunt(Environment):
    """Asks for the number of its task. Tasks of the split "broken" fail in their setup."""

    count: ClassVar[Counter[str]] = Counter()

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train", "broken"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"split": split, "target": n} for n in range(8)]

    def setup(self) -> None:
        if self.task_spec["split"] == "broken":
            raise RuntimeError("the setup is broken")
        self.count["open"] += 1

    def teardown(self) -> None:
        if self.task_spec["split"] != "broken":
            self.count["open"] -= 1

    def get_prompt(self) -> Blocks:
        return [TextBlock(text=f"Guess {self.task_spec['target']}.")]

    @tool
    def guess(self, number: int) -> ToolOutput:
        """Guess the number, which ends the episode."""
        self.count["guess"] += 1
        right = number == self.task_spec["target"]
        return ToolOutput(blocks=[TextBlock(text="Guessed.")], reward=float(right), finished=True)

    @tool
    def hint(self) -> ToolOutput:
        """Ask for a hint, which is worth a little."""
        return ToolOutput(blocks=[TextBlock(text="Read the prompt.")], reward=0.25)

    @tool
    def look(self) -> ToolOutput:
        """Look at a picture."""
        return ToolOutput(blocks=[TextBlock(text="A pixel:"), ImageBlock(data=png(), mimeType="image/png")])

    @tool
    def refuse(self) -> ToolOutput:
        """Is refused."""
        raise ToolError("not today")

    @tool
    def crash(self) -> ToolOutput:
        """Raises."""
        raise RuntimeError("the tool is broken")

    @tool
    def shrug(self) -> ToolOutput:
        """End the episode without a reward."""
        return ToolOutput(blocks=[TextBlock(text="Who knows?")], finished=True)


class Locked(Hunt):
    """Needs a secret."""

    required_secrets = ["hunt_key"]

    def get_prompt(self) -> Blocks:
        return [TextBlock(text=f"{self.secrets['hunt_key']}: guess {self.task_spec['target']}.")]


class Parts(Hunt):
    """The same, with named rewards."""

    reward_range = (0, 2)
    reward_components = {"correct": "Whether the guess is right.", "format": "What the calls are worth."}

    @tool
    def guess(self, number: int) -> ToolOutput:
        """Guess the number, which ends the episode."""
        right = float(number == self.task_spec["target"])
        return ToolOutput("Guessed.", rewards={"correct": right, "format": 0.5}, finished=True)

    @tool
    def hint(self) -> ToolOutput:
        """Ask for a hint, which is worth a little."""
        return ToolOutput("Read the prompt.", rewards={"format": 0.25})


class Essay(Hunt):
    """The same, with a tool that takes the last message."""

    @terminal
    @tool
    def grade(self, message: str) -> ToolOutput:
        """Grade the last message."""
        return ToolOutput(blocks=[], reward=float(str(self.task_spec["target"]) in message), finished=True)


class Gallery(Hunt):
    """The same, with a picture in the prompt."""

    def get_prompt(self) -> Blocks:
        return [*super().get_prompt(), ImageBlock(data=png(), mimeType="image/png")]


def told(url: str) -> None:
    print(url, flush=True)


@contextmanager
def hunt_elsewhere(port: str = "0") -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A server in a process of its own, to be killed, and its URL."""
    command = [sys.executable, "-m", "tests.support.training_environment", port]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    Server([Hunt]).runner(port=int(sys.argv[1]), on_start=told).run()
