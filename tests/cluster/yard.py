"""An environment whose tools leave traces in a file, so that what ran can be counted from outside."""

import asyncio
import os
import threading
import time
from pathlib import Path

from ors import Blocks, Environment, JSONObject, TextBlock, ToolOutput, tool


def said(text: str) -> ToolOutput:
    return ToolOutput(blocks=[TextBlock(text=text)])


class Yard(Environment):
    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"n": n} for n in range(10)]

    def get_prompt(self) -> Blocks:
        return [TextBlock(text="yard")]

    def trace(self, line: str) -> None:
        with Path(os.environ["YARD"]).open("a") as file:
            file.write(f"{line}\n")

    @tool
    async def stay(self, name: str) -> ToolOutput:
        """Leaves a trace and stays."""
        self.trace(name)
        await asyncio.Event().wait()
        return said("never")

    @tool
    async def wait(self, name: str, seconds: float) -> ToolOutput:
        """Leaves a trace and takes its time."""
        self.trace(name)
        await asyncio.sleep(seconds)
        return said(name)

    @tool
    async def note(self, name: str) -> ToolOutput:
        """Leaves a trace."""
        self.trace(name)
        return said(str(os.getpid()))

    @tool
    def spin(self, seconds: float) -> ToolOutput:
        """Keeps a core busy for so many seconds of its time."""
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass
        return said(str(os.getpid()))

    @tool
    def grow(self, megabytes: int) -> ToolOutput:
        """Takes memory, and keeps it."""
        HELD.append(b"x" * (megabytes << 20))
        return said(str(threading.active_count()))


HELD: list[bytes] = []
