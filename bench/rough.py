"""Environments that behave badly on demand, and one that tells what is left in the server's process."""

import asyncio
import gc
import os
import threading
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from ors import Blocks, Environment, TextBlock, ToolOutput, tool

HANG_SECONDS = 3.0
"""A tool that hangs in a thread lets go after this long, so that a long run does not end with no memory."""
MOST_CALLS = 10_000_000
TEXT = "0123456789abcdef" * 64


def _said(text: str) -> ToolOutput:
    return ToolOutput(blocks=[TextBlock(text=text)])


class _Small(Environment):
    @classmethod
    def list_splits(cls) -> Sequence[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> Sequence[dict[str, Any]]:
        return [{"number": number} for number in range(10)]

    def get_prompt(self) -> Blocks:
        return [TextBlock(text="Be rough.")]


class Rough(_Small):
    """Each tool is told the number of its call and counts that it has run. The task says what else fails."""

    ran: ClassVar[bytearray] = bytearray(MOST_CALLS)

    def _count(self, call: int) -> None:
        if 0 <= call < MOST_CALLS:
            self.ran[call] = min(self.ran[call] + 1, 255)

    async def setup(self) -> None:
        if self.task_spec.get("setup") == "hang":
            await asyncio.Event().wait()
        if self.task_spec.get("setup") == "raise":
            raise RuntimeError("no setup today")

    async def teardown(self) -> None:
        if self.task_spec.get("teardown") == "hang":
            await asyncio.Event().wait()
        if self.task_spec.get("teardown") == "raise":
            raise RuntimeError("no teardown today")

    @tool
    async def echo(self, call: int, text: str = "") -> ToolOutput:
        """Answers at once."""
        self._count(call)
        return _said(text)

    @tool
    def echo_sync(self, call: int, text: str = "") -> ToolOutput:
        """Answers at once, from a thread."""
        self._count(call)
        return _said(text)

    @tool
    async def slow(self, call: int) -> ToolOutput:
        """Takes a moment."""
        self._count(call)
        await asyncio.sleep(0.3)
        return _said("slept")

    @tool
    async def big(self, call: int, kilobytes: int) -> ToolOutput:
        """Gives a long result."""
        self._count(call)
        return _said(TEXT * kilobytes)

    @tool
    async def fail(self, call: int) -> ToolOutput:
        """Raises."""
        self._count(call)
        raise RuntimeError("failed, as asked")

    @tool
    def fail_sync(self, call: int) -> ToolOutput:
        """Raises in a thread."""
        self._count(call)
        raise RuntimeError("failed, as asked")

    @tool
    async def stay(self) -> ToolOutput:
        """Never answers, and may take its time about it."""
        await asyncio.Event().wait()
        return _said("never")

    @tool(timeout=0.5)
    async def hang(self, call: int) -> ToolOutput:
        """Never answers."""
        self._count(call)
        await asyncio.Event().wait()
        return _said("never")

    @tool(timeout=0.5)
    def hang_sync(self, call: int) -> ToolOutput:
        """Never answers in time, from a thread."""
        self._count(call)
        time.sleep(HANG_SECONDS)
        return _said("too late")


class Census(_Small):
    """What is left in this process."""

    @tool
    async def count(self) -> ToolOutput:
        """Counts tasks, threads, descriptors, and the calls that have run."""
        gc.collect()
        found = {
            "tasks": len(asyncio.all_tasks()),
            "threads": threading.active_count(),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "ran": len(Rough.ran) - Rough.ran.count(0),
            "ran_again": len(Rough.ran) - Rough.ran.count(0) - Rough.ran.count(1),
        }
        return ToolOutput(blocks=[TextBlock(text="")], metadata=found)
