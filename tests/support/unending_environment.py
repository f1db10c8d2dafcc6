"""An environment whose episodes have a process that only teardown ends."""

import os
import subprocess
import time
from pathlib import Path

from ors import Blocks, Environment, JSONObject, TextBlock, ToolOutput, tool

PROCESSES = "PROCESSES"
"""Variable with the file that names every process."""


class Unending(Environment):
    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        _note(os.getpid())
        return [{"n": 1}]

    def setup(self) -> None:
        # In a session of its own, so that the end of a terminal does not reach it.
        self.process = subprocess.Popen(["sleep", "600"], start_new_session=True)
        _note(self.process.pid)

    def teardown(self) -> None:
        self.process.kill()
        self.process.wait()

    def get_prompt(self) -> Blocks:
        return [TextBlock(text="Wait.")]

    @tool
    def wait(self) -> ToolOutput:
        """Waits."""
        time.sleep(0.2)  # a real duration: a call that takes its time
        return ToolOutput(blocks=[])


def _note(pid: int) -> None:
    with Path(os.environ[PROCESSES]).open("a") as file:
        file.write(f"{pid}\n")
