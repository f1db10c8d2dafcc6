"""The probe: environments for conformance checks.

Serve them to enable all checks: `ors serve ors.conformance.probe`. To serve them with another SDK whose
environments have the same interface, change the import.
"""

import asyncio
import json
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ors import Blocks, Environment, ImageBlock, ListToolsOutput, Split, TextBlock, ToolOutput, ToolSpec, tool

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Text(BaseModel):
    text: str


class Seconds(BaseModel):
    seconds: float


class Size(BaseModel):
    characters: int
    character: str = "x"


class Gift(BaseModel):
    reward: float | None = None
    finished: bool = False
    metadata: dict[str, Any] | None = None
    seconds: float = 0.0


class Step(BaseModel):
    name: str
    seconds: float


class Name(BaseModel):
    name: str


def said(text: str, **rest: Any) -> ToolOutput:
    return ToolOutput(blocks=[TextBlock(text=text)], **rest)


def notebook(run: str) -> Path:
    """File in which environments record setup and teardown, readable by sessions in all processes."""
    if not re.fullmatch(r"[a-z0-9]{1,40}", run):
        raise ValueError("the name of a run must consist of lower-case letters and digits")
    return Path(tempfile.gettempdir()) / f"ors-probe-{run}.txt"


class Probe(Environment):
    """Obeys its task (run, setup_seconds, setup_fails, teardown_seconds) and the inputs of its tools."""

    def __init__(self, task_spec: Any = {}, secrets: dict[str, str] = {}) -> None:  # noqa: B006
        super().__init__(task_spec, secrets)
        self.task = dict(task_spec)
        self.given_secrets = dict(secrets)
        self.count = 0
        self.steps: list[str] = []

    @classmethod
    def list_splits(cls) -> Sequence[Split | str]:
        """One split of each type, and one with another name."""
        return ["train", Split(name="test", type="test"), "validation", "extra"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        return [{"id": f"{split}-{number}", "number": number} for number in range(5)]

    async def setup(self) -> None:
        """Takes the time that the task sets, and fails if the task says so."""
        self.note("setup")
        await asyncio.sleep(self.task.get("setup_seconds", 0))
        if self.task.get("setup_fails"):
            raise RuntimeError("told to fail in setup")
        self.note("ready")

    async def teardown(self) -> None:
        self.note("teardown")
        await asyncio.sleep(self.task.get("teardown_seconds", 0))

    def note(self, word: str) -> None:
        if "run" not in self.task:
            return
        book = notebook(self.task["run"])
        if word == "setup" or book.exists():  # a deleted notebook is not created again
            with book.open("a") as lines:
                lines.write(f"{word}\n")

    def get_prompt(self) -> Blocks:
        """Returns the task as JSON, and an image if the task asks for one."""
        text = TextBlock(text=json.dumps(self.task, sort_keys=True))
        if self.task.get("image"):
            return [text, ImageBlock(data=PIXEL, mimeType="image/png")]
        return [text]

    @tool
    async def echo(self, given: Text) -> ToolOutput:
        """Returns the text."""
        return said(given.text)

    @tool
    async def big(self, given: Size) -> ToolOutput:
        """Returns this number of characters."""
        return said(given.character * given.characters)

    @tool
    async def give(self, given: Gift) -> ToolOutput:
        """Returns the given values after some time."""
        await asyncio.sleep(given.seconds)
        return said("here", reward=given.reward, finished=given.finished, metadata=given.metadata)

    @tool
    async def strange_reward(self, given: Name) -> ToolOutput:
        """Returns the reward nan, inf or -inf."""
        return said("here", reward=float(given.name))

    @tool
    async def picture(self) -> ToolOutput:
        """Returns a text and an image."""
        return ToolOutput(blocks=[TextBlock(text="look"), ImageBlock(data=PIXEL, mimeType="image/png")])

    @tool
    async def surrogate(self) -> ToolOutput:
        """Returns a text with a lone surrogate, which UTF-8 cannot encode."""
        return said("before \ud800 after")

    @tool
    async def fail(self, given: Text) -> ToolOutput:
        """Raises an exception with this text."""
        raise RuntimeError(given.text)

    @tool
    async def cancel(self) -> ToolOutput:
        """Cancels itself."""
        raise asyncio.CancelledError

    @tool
    async def slow(self, given: Seconds) -> ToolOutput:
        """Waits, then increments the counter."""
        await asyncio.sleep(given.seconds)
        self.count += 1
        return said(str(self.count))

    @tool
    def block(self, given: Seconds) -> ToolOutput:
        """Blocks in a plain function."""
        time.sleep(given.seconds)
        return said("waited")

    @tool
    async def add(self) -> ToolOutput:
        """Increments the counter."""
        self.count += 1
        return said(str(self.count))

    @tool
    async def counted(self) -> ToolOutput:
        """Returns the counter."""
        return said(str(self.count))

    @tool
    async def step(self, given: Step) -> ToolOutput:
        """Records its start and its end."""
        self.steps.append(f"+{given.name}")
        await asyncio.sleep(given.seconds)
        self.steps.append(f"-{given.name}")
        return said(" ".join(self.steps))

    @tool
    async def secret(self, given: Name) -> ToolOutput:
        """Returns the secret of this name."""
        return said(str(self.given_secrets.get(given.name)))

    @tool
    async def fail_with_secret(self, given: Name) -> ToolOutput:
        """Raises an exception with the secret in its text."""
        raise RuntimeError(f"could not log in with {self.given_secrets[given.name]}")

    @tool
    def notes(self, given: Name) -> ToolOutput:
        """Returns the notebook of this run."""
        book = notebook(given.name)
        return said(book.read_text() if book.exists() else "")

    @tool
    def forget(self, given: Name) -> ToolOutput:
        """Deletes the notebook of this run."""
        notebook(given.name).unlink(missing_ok=True)
        return said("forgotten")

    @tool(shared=False)
    async def hint(self) -> ToolOutput:
        """Returns a hint for this task."""
        return said("a hint")


class ProbeIndexed(Environment):
    """Environment without a task list, whose tools depend on the task."""

    def __init__(self, task_spec: Any = {}, secrets: dict[str, str] = {}) -> None:  # noqa: B006
        super().__init__(task_spec, secrets)
        self.task = dict(task_spec)

    @classmethod
    def name(cls) -> str:
        return "probe_indexed"

    @classmethod
    def list_splits(cls) -> Sequence[Split | str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        """Not available: there are too many tasks."""
        raise NotImplementedError

    @classmethod
    async def num_tasks(cls, split: str) -> int:
        return 1_000_000

    @classmethod
    async def get_task(cls, split: str, index: int) -> dict[str, Any]:
        """Builds a task from its index; even ones have the tool `pick`, odd ones `skip`."""
        if not 0 <= index < 1_000_000:
            raise IndexError(index)
        return {"number": index, "tool": ["pick", "skip"][index % 2]}

    def get_prompt(self) -> Blocks:
        return [TextBlock(text=json.dumps(self.task, sort_keys=True))]

    def list_task_tools(self) -> ListToolsOutput:
        name = self.task.get("tool", "pick")
        return ListToolsOutput(tools=[ToolSpec(name=name, description="Of this task.", input_schema=None)])

    @tool
    async def always(self) -> ToolOutput:
        """Exists for every task."""
        return said("always")

    @tool(shared=False)
    async def pick(self) -> ToolOutput:
        """Exists for even tasks."""
        return said("picked")

    @tool(shared=False)
    async def skip(self) -> ToolOutput:
        """Exists for odd tasks."""
        return said("skipped")
