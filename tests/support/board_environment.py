"""Environments whose sessions are forked; a test shares `gates` and `counts`, by the task's "id"."""

import asyncio
import threading
from collections import Counter, defaultdict
from typing import Any, ClassVar

from ors import Environment, TextBlock, ToolOutput, Toolset, tool
from ors.types import Blocks, JSONObject
from tests.support.environments import said


class Notes(Toolset):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.written: list[str] = []

    @tool
    def note(self, text: str) -> ToolOutput:
        """Writes something down."""
        self.written.append(text)
        return said(f"{','.join(self.written)} of {','.join(self.env.moves)}")


class Board(Environment):
    """Remembers moves. Has no fork() of its own."""

    gates: ClassVar[dict[str, threading.Event]] = defaultdict(threading.Event)
    counts: ClassVar[Counter[str]] = Counter()
    toolsets = (Notes,)

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"n": n} for n in range(3)]

    def setup(self) -> None:
        self.id = str(self.task_spec.get("id", ""))
        if self.task_spec.get("setup_gate"):
            assert self.gates[f"{self.id}.setup"].wait(20)
        self.moves: list[str] = []
        if self.task_spec.get("lock"):
            self.lock = threading.Lock()
        if self.task_spec.get("fail"):
            raise RuntimeError("no setup today")

    def teardown(self) -> None:
        if self.task_spec.get("teardown_gate") and "forked" in self.moves:
            self.gates[f"{self.id}.tearing"].set()
            assert self.gates[f"{self.id}.teardown"].wait(20)
        self.counts[f"{self.id}.teardown"] += 1

    def get_prompt(self) -> Blocks:
        return [TextBlock(text=f"task {self.task_spec.get('n')}")]

    @tool
    async def move(self, name: str) -> ToolOutput:
        """Makes a move, and shows all."""
        self.moves.append(name)
        return said(",".join(self.moves), reward=1.0)

    @tool
    def hold(self) -> ToolOutput:
        """Waits for the test's word, then moves."""
        self.gates[f"{self.id}.held"].set()
        assert self.gates[f"{self.id}.hold"].wait(20)
        self.moves.append("held")
        return said("held")

    @tool
    async def finish(self) -> ToolOutput:
        """Ends the episode."""
        return said("done", finished=True)

    @tool
    async def secret(self) -> ToolOutput:
        """Shows the secrets."""
        return said("", metadata=dict(self.secrets))


class Forking(Board):
    """Has a `def fork()`, which waits for the test's word if the task has a "gate"."""

    def fork(self) -> Any:
        self.counts[f"{self.id}.fork"] += 1
        self.gates[f"{self.id}.forking"].set()
        if self.task_spec.get("gate"):
            assert self.gates[f"{self.id}.fork"].wait(20)
        if self.task_spec.get("boom") == self.counts[f"{self.id}.fork"]:
            raise RuntimeError(f"no more copies, {self.secrets.get('key', '')}")
        return {"itself": self, "nothing": None}.get(str(self.task_spec.get("returns")), super().fork())


class Bare(Forking):
    """Has nothing to tear down."""

    teardown = Environment.teardown  # type: ignore[assignment]


class AsyncForking(Board):
    """Has an `async def fork()`, which stays for ever if the task says so."""

    async def fork(self) -> "AsyncForking":
        self.counts[f"{self.id}.fork"] += 1
        self.gates[f"{self.id}.forking"].set()
        if self.task_spec.get("stay") == self.counts[f"{self.id}.fork"]:
            await asyncio.Event().wait()
        made = type(self)(self.task_spec, self.secrets)
        made.id, made.moves = self.id, [*self.moves, "forked"]
        return made
