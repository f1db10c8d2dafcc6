"""Environments for attacks: tools that leave traces, wait for a gate, or take the server to a limit."""

import os
import resource
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from ors import Blocks, Environment, JSONObject, Server, TextBlock, ToolOutput, tool
from ors.server.connections.asgi import ASGI

TASKS = 400
"""So many make a listing of about 50 KB, which goes over a link in one frame."""
GATE_SECONDS = 30.0
STACK_BYTES = 256 * 2**20
ROOM_BYTES = 64 * 2**20


def said(text: str) -> ToolOutput:
    return ToolOutput(blocks=[TextBlock(text=text)])


class Ground(Environment):
    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"n": n, "text": "x" * 100} for n in range(TASKS)]

    def get_prompt(self) -> Blocks:
        return [TextBlock(text="ground")]

    def _trace(self, name: str) -> None:
        with Path(os.environ["GROUND_TRACES"]).open("a") as file:
            file.write(f"{name}\n")

    @tool
    async def note(self, name: str) -> ToolOutput:
        """Leaves a trace and repeats its name."""
        self._trace(name)
        return said(name)

    @tool
    def hold(self, name: str, gate: str) -> ToolOutput:
        """Leaves a trace and keeps its thread until that file is there."""
        self._trace(name)
        until = time.monotonic() + GATE_SECONDS
        while not Path(gate).exists() and time.monotonic() < until:  # the file comes from another process
            time.sleep(0.02)
        return said(name)

    @tool
    async def squeeze(self, threads: int) -> ToolOutput:
        """Leaves this process address space for about so many threads more."""
        threading.stack_size(STACK_BYTES)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        size = pages * os.sysconf("SC_PAGE_SIZE") + threads * STACK_BYTES + ROOM_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
        return said(str(size))

    @tool
    async def files(self, count: int) -> ToolOutput:
        """Opens so many files at once, as any tool may."""
        with ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(Path(__file__).open())
        return said(str(count))


class Rough(Ground):
    """A second one, so that bare paths are not redirected to the only one; fuzzed requests name it."""


def app() -> ASGI:
    """The application for a foreign ASGI server, with the keys and origins of the environment's variables."""
    keys, origins = os.environ["GROUND_KEYS"].split(), os.environ["GROUND_ORIGINS"].split()
    return Server([Ground, Rough], api_keys=keys, cors_origins=origins).app
