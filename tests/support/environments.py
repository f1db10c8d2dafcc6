"""Environments that do whatever a test of the server asks for."""

import asyncio
import sys
import threading
import time
from collections import Counter, defaultdict
from typing import Any, ClassVar

from pydantic import BaseModel

from ors import Environment, ImageBlock, Split, TextBlock, ToolError, ToolOutput, tool
from ors.types import Blocks, JSONObject, ListToolsOutput, ToolSpec
from tests.support.waiting import until


def said(text: str, **kwargs: Any) -> ToolOutput:
    return ToolOutput(blocks=[TextBlock(text=text)], **kwargs)


class Text(BaseModel):
    text: str


class Reward(BaseModel):
    value: float | None = None
    finished: bool = False


class Lab(Environment):
    """What a tool does is in its name. `gates` and `counts` are shared with the test, by the task's "id"."""

    gates: ClassVar[dict[str, threading.Event]] = defaultdict(threading.Event)
    counts: ClassVar[Counter[str]] = Counter()
    threads: ClassVar[dict[str, int]] = {}

    def __init__(self, task_spec: JSONObject, secrets: dict[str, str]) -> None:
        super().__init__(task_spec, secrets)
        self.id = str(task_spec.get("id", ""))
        self.threads[f"{self.id}.init"] = threading.get_ident()
        if task_spec.get("fail") == "init":
            raise RuntimeError("no constructor today")

    @classmethod
    def list_splits(cls) -> list[Split | str]:
        return ["train", Split(name="test", type="test"), "extra"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        cls.counts[f"{cls.__name__}.list_tasks.{split}"] += 1
        return [{"n": n, "split": split} for n in range(5)]

    def setup(self) -> None:
        self.threads[f"{self.id}.setup"] = threading.get_ident()
        if self.task_spec.get("setup_gate"):
            assert self.gates[f"{self.id}.setup"].wait(20)
        if self.task_spec.get("fail") == "setup":
            raise RuntimeError(f"no setup today, {self.secrets.get('key', '')}")

    def teardown(self) -> None:
        self.counts[f"{self.id}.teardown"] += 1
        self.threads[f"{self.id}.teardown"] = threading.get_ident()
        if self.task_spec.get("hang") == "teardown":
            self.gates[f"{self.id}.teardown"].wait(20)

    def get_prompt(self) -> Blocks:
        self.threads[f"{self.id}.prompt"] = threading.get_ident()
        return [
            TextBlock(text=f"task {self.task_spec.get('n')}"),
            ImageBlock(data="aGk=", mimeType="image/png"),
        ]

    @tool
    async def echo(self, given: Text) -> ToolOutput:
        """Says it again."""
        self.counts[f"{self.id}.echo"] += 1
        return said(given.text)

    @tool
    def echo_sync(self, text: str) -> ToolOutput:
        """Says it again, from a thread."""
        self.threads[f"{self.id}.echo_sync"] = threading.get_ident()
        return said(text)

    @tool
    def nothing(self) -> ToolOutput:
        """Takes nothing."""
        return said("nothing")

    @tool
    async def reward(self, given: Reward) -> ToolOutput:
        """Gives a reward."""
        return said("here", reward=given.value, finished=given.finished, metadata={"k": [1, None]})

    @tool
    async def strange_reward(self, given: Text) -> ToolOutput:
        """Gives a reward that is no number."""
        return said("here", reward=float(given.text))

    @tool
    async def boom(self, given: Text) -> ToolOutput:
        """Raises."""
        raise RuntimeError(given.text)

    @tool
    def boom_sync(self, given: Text) -> ToolOutput:
        """Raises in a thread."""
        raise RuntimeError(given.text)

    @tool
    async def refuse(self, given: Text) -> ToolOutput:
        """Refuses."""
        raise ToolError(given.text, reason="mood")

    @tool
    async def leave(self) -> ToolOutput:
        """Tries to end the process."""
        sys.exit(3)

    @tool
    def leave_sync(self) -> ToolOutput:
        """Tries to end the process from a thread."""
        sys.exit(3)

    @tool
    async def cancel(self) -> ToolOutput:
        """Cancels itself."""
        raise asyncio.CancelledError

    @tool
    async def wrong_type(self) -> ToolOutput:
        """Returns something else."""
        return {"oops": 1}  # type: ignore[return-value]

    @tool
    async def secret(self) -> ToolOutput:
        """Raises with the secret in the message."""
        raise RuntimeError(f"the key is {self.secrets['key']}")

    @tool
    async def show_secrets(self) -> ToolOutput:
        """Shows the secrets, and how they print."""
        return said(repr(self.secrets), metadata=dict(self.secrets))

    @tool
    def hold(self, name: str = "hold") -> ToolOutput:
        """Waits for the test's word, in a thread."""
        self.counts[f"{self.id}.hold"] += 1
        self.gates[f"{self.id}.held"].set()
        assert self.gates[f"{self.id}.{name}"].wait(20)
        return said("held")

    @tool
    async def hold_async(self) -> ToolOutput:
        """Waits for the test's word, on the loop."""
        self.counts[f"{self.id}.hold_async"] += 1
        self.gates[f"{self.id}.held"].set()
        try:
            await asyncio.get_running_loop().run_in_executor(None, self.gates[f"{self.id}.hold"].wait, 20)
        except asyncio.CancelledError:
            self.counts[f"{self.id}.cancelled"] += 1
            raise
        return said("held")

    @tool
    async def stay(self) -> ToolOutput:
        """Stays until it is cancelled."""
        self.gates[f"{self.id}.held"].set()
        await asyncio.Event().wait()
        return said("never")

    @tool
    async def finish(self, given: Reward) -> ToolOutput:
        """Waits for the test's word, then ends the episode."""
        self.gates[f"{self.id}.held"].set()
        await until(self.gates[f"{self.id}.hold"].is_set, "the test's word")
        return said("finished", reward=given.value, finished=True)

    @tool(concurrent=True)
    def meet(self, name: str) -> ToolOutput:
        """Waits until both "a" and "b" are here: proves that two calls overlap."""
        self.gates[f"{self.id}.{name}"].set()
        met = self.gates[f"{self.id}.{'b' if name == 'a' else 'a'}"].wait(20)
        return said(f"met: {met}")

    @tool
    def order(self, name: str) -> ToolOutput:
        """Notes that it started and ended, with a pause between."""
        log = self.task_log(self.id)
        log.append(f"+{name}")
        time.sleep(0.01)  # a real duration: calls that overlap would show it
        log.append(f"-{name}")
        return said("ok")

    logs: ClassVar[dict[str, list[str]]] = defaultdict(list)

    @classmethod
    def task_log(cls, id: str) -> list[str]:
        return cls.logs[id]

    @tool(shared=False)
    async def hint(self) -> ToolOutput:
        """A hint for this task."""
        return said("hint")


class Other(Environment):
    """An environment whose classmethods are async, with task tools of its own making."""

    @classmethod
    async def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    async def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"kind": "a"}, {"kind": "b"}]

    async def get_prompt(self) -> Blocks:
        return [TextBlock(text="other")]

    def list_task_tools(self) -> ListToolsOutput:
        names = ["pick"] if self.task_spec.get("kind") == "a" else ["made_up"]
        return ListToolsOutput(tools=[ToolSpec(name=n, description="", input_schema=None) for n in names])

    @tool
    async def always(self) -> ToolOutput:
        """Always there."""
        return said("always")

    @tool(shared=False)
    async def pick(self) -> ToolOutput:
        """Only for tasks of kind a."""
        return said("picked")
