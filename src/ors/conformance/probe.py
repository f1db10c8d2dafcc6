"""The probe: environments that do what the conformance checks ask for.

Host them to have everything checked: `ors serve ors.conformance.probe`. Nothing here is this package's alone:
any server that takes environments of this kind can host them, by changing the import.
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
    """A text."""

    text: str


class Seconds(BaseModel):
    """A time."""

    seconds: float


class Size(BaseModel):
    """How much of which character."""

    characters: int
    character: str = "x"


class Gift(BaseModel):
    """What a tool is to return."""

    reward: float | None = None
    finished: bool = False
    metadata: dict[str, Any] | None = None
    seconds: float = 0.0


class Step(BaseModel):
    """A step, and how long it takes."""

    name: str
    seconds: float


class Name(BaseModel):
    """A name."""

    name: str


def said(text: str, **rest: Any) -> ToolOutput:
    """A tool's output with one text."""
    return ToolOutput(blocks=[TextBlock(text=text)], **rest)


def notebook(run: str) -> Path:
    """Where the life of environments is noted, for other sessions to read, in other processes too."""
    if not re.fullmatch(r"[a-z0-9]{1,40}", run):
        raise ValueError("a run is named by small letters and digits")
    return Path(tempfile.gettempdir()) / f"ors-probe-{run}.txt"


class Probe(Environment):
    """Does what it is told; its life too: run, setup_seconds, setup_fails, teardown_seconds of the task."""

    def __init__(self, task_spec: Any = {}, secrets: dict[str, str] = {}) -> None:  # noqa: B006
        super().__init__(task_spec, secrets)
        self.task = dict(task_spec)
        self.given_secrets = dict(secrets)
        self.count = 0
        self.steps: list[str] = []

    @classmethod
    def name(cls) -> str:
        """What the environment is called."""
        return "probe"

    @classmethod
    def list_splits(cls) -> Sequence[Split | str]:
        """One split of each kind, and one of a name without meaning."""
        return ["train", Split(name="test", type="test"), "validation", "extra"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        """Five tasks."""
        return [{"id": f"{split}-{number}", "number": number} for number in range(5)]

    async def setup(self) -> None:
        """Takes as long as the task says, and fails if the task says so."""
        self.note("setup")
        await asyncio.sleep(self.task.get("setup_seconds", 0))
        if self.task.get("setup_fails"):
            raise RuntimeError("told to fail in setup")
        self.note("ready")

    async def teardown(self) -> None:
        """Takes as long as the task says."""
        self.note("teardown")
        await asyncio.sleep(self.task.get("teardown_seconds", 0))

    def note(self, word: str) -> None:
        """Writes into the notebook of the task's run."""
        if "run" not in self.task:
            return
        book = notebook(self.task["run"])
        if word == "setup" or book.exists():  # a notebook that was thrown away stays so
            with book.open("a") as lines:
                lines.write(f"{word}\n")

    def get_prompt(self) -> Blocks:
        """The task, as JSON; and a picture, if the task asks for it."""
        text = TextBlock(text=json.dumps(self.task, sort_keys=True))
        if self.task.get("image"):
            return [text, ImageBlock(data=PIXEL, mimeType="image/png")]
        return [text]

    @tool
    async def echo(self, given: Text) -> ToolOutput:
        """Gives the text back."""
        return said(given.text)

    @tool
    async def big(self, given: Size) -> ToolOutput:
        """Gives as many characters as asked for."""
        return said(given.character * given.characters)

    @tool
    async def give(self, given: Gift) -> ToolOutput:
        """Gives what it is told to, after some time."""
        await asyncio.sleep(given.seconds)
        return said("here", reward=given.reward, finished=given.finished, metadata=given.metadata)

    @tool
    async def strange_reward(self, given: Name) -> ToolOutput:
        """Gives a reward that is no number: nan, inf or -inf."""
        return said("here", reward=float(given.name))

    @tool
    async def picture(self) -> ToolOutput:
        """Gives a text and a picture."""
        return ToolOutput(blocks=[TextBlock(text="look"), ImageBlock(data=PIXEL, mimeType="image/png")])

    @tool
    async def surrogate(self) -> ToolOutput:
        """Gives text that UTF-8 cannot carry, between two words that it can."""
        return said("before \ud800 after")

    @tool
    async def fail(self, given: Text) -> ToolOutput:
        """Raises an exception with that text."""
        raise RuntimeError(given.text)

    @tool
    async def cancel(self) -> ToolOutput:
        """Cancels itself."""
        raise asyncio.CancelledError

    @tool
    async def slow(self, given: Seconds) -> ToolOutput:
        """Waits, then counts."""
        await asyncio.sleep(given.seconds)
        self.count += 1
        return said(str(self.count))

    @tool
    def block(self, given: Seconds) -> ToolOutput:
        """Waits in a plain function."""
        time.sleep(given.seconds)
        return said("waited")

    @tool
    async def add(self) -> ToolOutput:
        """Counts its calls in this session."""
        self.count += 1
        return said(str(self.count))

    @tool
    async def counted(self) -> ToolOutput:
        """Says how far it has counted."""
        return said(str(self.count))

    @tool
    async def step(self, given: Step) -> ToolOutput:
        """Notes when it begins and when it ends."""
        self.steps.append(f"+{given.name}")
        await asyncio.sleep(given.seconds)
        self.steps.append(f"-{given.name}")
        return said(" ".join(self.steps))

    @tool
    async def secret(self, given: Name) -> ToolOutput:
        """Gives the secret of that name."""
        return said(str(self.given_secrets.get(given.name)))

    @tool
    async def fail_with_secret(self, given: Name) -> ToolOutput:
        """Raises an exception that has the secret in its text."""
        raise RuntimeError(f"could not log in with {self.given_secrets[given.name]}")

    @tool
    def notes(self, given: Name) -> ToolOutput:
        """Gives what environments of that run have noted."""
        book = notebook(given.name)
        return said(book.read_text() if book.exists() else "")

    @tool
    def forget(self, given: Name) -> ToolOutput:
        """Throws the notes of that run away."""
        notebook(given.name).unlink(missing_ok=True)
        return said("forgotten")

    @tool(shared=False)
    async def hint(self) -> ToolOutput:
        """A hint for this task."""
        return said("a hint")


class ProbeIndexed(Environment):
    """An environment that does not list its tasks, and has tools by task."""

    def __init__(self, task_spec: Any = {}, secrets: dict[str, str] = {}) -> None:  # noqa: B006
        super().__init__(task_spec, secrets)
        self.task = dict(task_spec)

    @classmethod
    def name(cls) -> str:
        """What the environment is called."""
        return "probe_indexed"

    @classmethod
    def list_splits(cls) -> Sequence[Split | str]:
        """One split."""
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        """Too many to list."""
        raise NotImplementedError

    @classmethod
    async def num_tasks(cls, split: str) -> int:
        """A million."""
        return 1_000_000

    @classmethod
    async def get_task(cls, split: str, index: int) -> dict[str, Any]:
        """Made of its number; the first has the tool `pick`, the second the tool `skip`."""
        if not 0 <= index < 1_000_000:
            raise IndexError(index)
        return {"number": index, "tool": ["pick", "skip"][index % 2]}

    def get_prompt(self) -> Blocks:
        """The task, as JSON."""
        return [TextBlock(text=json.dumps(self.task, sort_keys=True))]

    def list_task_tools(self) -> ListToolsOutput:
        """The one tool that the task names."""
        name = self.task.get("tool", "pick")
        return ListToolsOutput(tools=[ToolSpec(name=name, description="Of this task.", input_schema=None)])

    @tool
    async def always(self) -> ToolOutput:
        """There for every task."""
        return said("always")

    @tool(shared=False)
    async def pick(self) -> ToolOutput:
        """Of some tasks."""
        return said("picked")

    @tool(shared=False)
    async def skip(self) -> ToolOutput:
        """Of the other tasks."""
        return said("skipped")
