"""An environment whose tools write traces to a file, so that tests can count what ran."""

import asyncio
import mmap
import os
import sys
import threading
import time
from pathlib import Path

from ors import Blocks, Environment, JSONObject, TextBlock, ToolOutput, tool

HELD: list[bytes] = []
PATIENCE = 20.0


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
    async def linger(self, name: str, gate: str) -> ToolOutput:
        """Leaves a trace and stays until that file is there."""
        self.trace(name)
        while not Path(gate).exists():  # polls: the file comes from another process
            await asyncio.sleep(0.05)
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
    def hog(self, name: str, gate: str) -> ToolOutput:
        """Leaves a trace and lets no other thread of its process run until that file's first byte is set."""
        interval, until = sys.getswitchinterval(), time.monotonic() + PATIENCE
        with Path(gate).open("rb") as file, mmap.mmap(file.fileno(), 1, prot=mmap.PROT_READ) as first:
            sys.setswitchinterval(10 * PATIENCE)
            try:
                self.trace(name)
                while not first[0] and time.monotonic() < until:  # neither lets go of the interpreter
                    pass
                return said("opened" if first[0] else "given up")
            finally:
                sys.setswitchinterval(interval)

    @tool
    def grow(self, megabytes: int) -> ToolOutput:
        """Takes memory, and keeps it."""
        HELD.append(b"x" * (megabytes << 20))
        return said(str(threading.active_count()))

    @tool
    async def swell(self, megabytes: int) -> ToolOutput:
        """Takes memory, and blocks the event loop."""
        HELD.append(b"x" * (megabytes << 20))
        time.sleep(PATIENCE)
        return said("late")

    @tool
    async def stick(self, name: str) -> ToolOutput:
        """Leaves a trace and keeps the interpreter to itself, so that nothing in its process can end it."""
        self.trace(name)
        sys.setswitchinterval(10 * PATIENCE)
        while True:
            pass
