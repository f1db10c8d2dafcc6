"""Environments with one fault each, and one without."""

import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, model_validator

from ors import (
    Blocks,
    Environment,
    JSONObject,
    ListToolsOutput,
    Split,
    TextBlock,
    ToolOutput,
    ToolSpec,
    tool,
)

WORDS = ["apple", "banana", "cherry", "damson", "elder", "fig", "grape"]
STOP = threading.Event()


class Guess(BaseModel):
    word: str


class Clean(Environment):
    """Say the word backwards."""

    @classmethod
    def list_splits(cls) -> Sequence[Split | str]:
        return ["train", "test"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"word": word} for word in (WORDS[:5] if split == "train" else WORDS[5:])]

    def get_prompt(self) -> Blocks:
        return [TextBlock(text=f"Spell {self.task_spec['word']} backwards.")]

    @classmethod
    def solve(cls, task_spec: JSONObject) -> list[tuple[str, JSONObject]]:
        return [("guess", {"word": str(task_spec["word"])[::-1]})]

    @tool
    def guess(self, given: Guess) -> ToolOutput:
        """Gives your word."""
        right = given.word == str(self.task_spec["word"])[::-1]
        return ToolOutput(
            blocks=[TextBlock(text="yes" if right else "no")], reward=float(right), finished=True
        )


class NoTasks(Clean):
    """tasks: cannot be listed."""

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        raise RuntimeError("the file is not there")


class Empty(Clean):
    """empty: a split without tasks."""

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"word": "fig"}] if split == "train" else []


class Miscounted(Clean):
    """count: num_tasks says something else."""

    @classmethod
    async def num_tasks(cls, split: str) -> int:
        return 17


class Shuffled(Clean):
    """unstable: another order every time."""

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"word": word, "split": split, "salt": random.random()} for word in WORDS]


class Overlapping(Clean):
    """overlap: the same tasks in both splits."""

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"word": word} for word in WORDS]


class Exposed(Clean):
    """exposed: answers in the listing."""

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{**task, "gold_answer": str(task["word"])[::-1]} for task in super().list_tasks(split)]


class BadSchema(Clean):
    """schema: no JSON Schema."""

    def list_task_tools(self) -> ListToolsOutput:
        schema: JSONObject = {"type": "object", "properties": {"n": {"type": "float"}}}
        return ListToolsOutput(tools=[ToolSpec(name="odd", description="Odd.", input_schema=schema)])

    async def _call_tool(self, name: str, input: JSONObject) -> Any:
        return await super()._call_tool("guess", {"word": ""} if name == "odd" else input)


class Undescribed(Clean):
    """description: a tool without one."""

    @tool
    def shrug(self) -> ToolOutput:
        return ToolOutput(blocks=[TextBlock(text="so what")])


class DoesNotOpen(Clean):
    """opens: setup raises for one task."""

    def setup(self) -> None:
        if self.task_spec["word"] == "fig":
            raise RuntimeError("no figs today")


class Silent(Clean):
    """prompt: empty."""

    def get_prompt(self) -> Blocks:
        return [TextBlock(text="  ")]


class Telling(Exposed):
    """answer-in-prompt (and exposed, as it has to be to be noticed)."""

    def get_prompt(self) -> Blocks:
        return [TextBlock(text=f"Say the word. (It is {self.task_spec['gold_answer']}.)")]


class Generous(Clean):
    """do-nothing: an empty word is in every word."""

    @tool
    def guess(self, given: Guess) -> ToolOutput:
        """Gives your word."""
        right = given.word in str(self.task_spec["word"])[::-1]
        return ToolOutput(blocks=[TextBlock(text="…")], reward=float(right), finished=True)


class Fragile(Clean):
    """raises: for words that it does not expect."""

    @tool
    def guess(self, given: Guess) -> ToolOutput:
        """Gives your word."""
        if given.word and given.word != str(self.task_spec["word"])[::-1]:
            raise KeyError(given.word)
        return ToolOutput(blocks=[TextBlock(text="…")], reward=float(bool(given.word)), finished=True)


class Picky(BaseModel):
    number: int

    @model_validator(mode="after")
    def even(self) -> "Picky":
        if self.number % 1000 != 777:
            raise ValueError(f"I only take some numbers, not {self.number}")
        return self


class Refusing(Clean):
    """refuses: what its schema allows."""

    @tool
    def pick(self, given: Picky) -> ToolOutput:
        """Picks a number."""
        return ToolOutput(blocks=[TextBlock(text="fine")])


class Lucky(Clean):
    """not-deterministic: rewards by chance."""

    @tool
    def guess(self, given: Guess) -> ToolOutput:
        """Gives your word."""
        right = given.word == str(self.task_spec["word"])[::-1]
        return ToolOutput(
            blocks=[TextBlock(text="…")],
            reward=1.0 if right else random.random() if given.word else 0.0,
            finished=True,
        )


class Crowded(Clean):
    """not-apart: the reward depends on who else is there."""

    there: ClassVar[list[object]] = []

    def setup(self) -> None:
        self.there.append(self)

    def teardown(self) -> None:
        self.there.remove(self)

    @tool
    def guess(self, given: Guess) -> ToolOutput:
        """Gives your word."""
        right = given.word == str(self.task_spec["word"])[::-1]
        reward = 1.0 if right else 0.1 * (len(self.there) - 1)
        return ToolOutput(blocks=[TextBlock(text="…")], reward=reward, finished=True)


class Unsolvable(Clean):
    """gold: the environment's own solution is wrong."""

    @classmethod
    def solve(cls, task_spec: JSONObject) -> list[tuple[str, JSONObject]]:
        return [("guess", {"word": str(task_spec["word"])})]


class BrokenSolve(Clean):
    """gold: the environment's own solution raises."""

    @classmethod
    def solve(cls, task_spec: JSONObject) -> list[tuple[str, JSONObject]]:
        raise RuntimeError("no idea")


class Overpaying(Clean):
    """declared-reward: earns more than its range has."""

    reward_range = (0, 0.5)
    max_reward = 1.0


class BadTeardown(Clean):
    """teardown: raises."""

    def teardown(self) -> None:
        raise RuntimeError("it is stuck")


class Threads(Clean):
    """threads: goes on after its end."""

    def setup(self) -> None:
        threading.Thread(target=STOP.wait, daemon=True, name="left-behind").start()


class Processes(Clean):
    """processes: goes on after its end."""

    started: ClassVar[list[subprocess.Popen[bytes]]] = []

    def setup(self) -> None:
        command = [sys.executable, "-c", "input()"]
        # Without a buffer, which would be memory that is kept: 128 KiB on Python 3.14.
        self.started.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0)
        )


class Files(Clean):
    """files: left in the temporary folder."""

    def setup(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="left-")


class Hoarding(Clean):
    """memory: keeps all episodes."""

    all: ClassVar[list[bytes]] = []

    def setup(self) -> None:
        self.all.append(bytes(50_000))


class Alarmed(Clean):
    """No fault: a signal limits its time, which needs the main thread."""

    @tool
    async def guess(self, given: Guess) -> ToolOutput:  # type: ignore[override]
        """Gives your word."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        return Clean.guess(self, given)


class Slow(Clean):
    """No fault, but takes its time."""

    def setup(self) -> None:
        time.sleep(0.05)


class Holding(Clean):
    """holds-loop: sleeps in an `async def`."""

    slept: ClassVar[bool] = False

    async def setup(self) -> None:
        if not Holding.slept:
            Holding.slept = True
            time.sleep(0.5)


FAULTY: dict[type[Environment], set[str]] = {
    NoTasks: {"tasks"},
    Empty: {"empty"},
    Miscounted: {"count"},
    Shuffled: {"unstable"},
    Overlapping: {"overlap"},
    Exposed: {"exposed"},
    BadSchema: {"schema"},
    Undescribed: {"description"},
    DoesNotOpen: {"opens"},
    Silent: {"prompt"},
    Telling: {"answer-in-prompt", "exposed"},
    Generous: {"do-nothing"},
    Fragile: {"raises"},
    Refusing: {"refuses"},
    Lucky: {"not-deterministic"},
    Crowded: {"not-apart"},
    Unsolvable: {"gold"},
    BrokenSolve: {"gold"},
    Overpaying: {"declared-reward"},
    BadTeardown: {"teardown"},
    Threads: {"threads"},
    Processes: {"processes"},
    Files: {"files"},
    Hoarding: {"memory"},
    Holding: {"holds-loop"},
}
