"""Environments whose faults hide: seen only now and then, beside others, elsewhere, or not ending at all."""

import os
import random
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any, ClassVar, Literal

from ors import Blocks, Environment, JSONObject, ListToolsOutput, TextBlock, ToolOutput, ToolSpec, tool
from tests.support.faulty_environments import WORDS, Clean, Guess

GOING_ON = threading.Event()
CHANCE = random.Random(7)
OUTSIDE: list[str] = []
"""A folder that is not the temporary one, for those who write elsewhere."""


def _graded(right: bool) -> ToolOutput:
    return ToolOutput(blocks=[TextBlock(text="yes" if right else "no")], reward=float(right), finished=True)


class Healthy(Clean):
    """No fault, though it has private answers, an async solution, a clock in its texts and a shared cache."""

    cache: ClassVar[dict[str, str]] = {}

    @classmethod
    def private_fields(cls) -> list[str]:
        return ["answer"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{**task, "answer": str(task["word"])[::-1]} for task in super().list_tasks(split)]

    @classmethod
    async def solve(cls, task_spec: JSONObject) -> list[tuple[str, JSONObject]]:  # type: ignore[override]
        return [("guess", {"word": task_spec["answer"]})]

    @tool
    def guess(self, given: Guess) -> ToolOutput:
        """Gives your word."""
        answer = self.cache.setdefault(str(self.task_spec["word"]), str(self.task_spec["answer"]))
        output = _graded(given.word == answer)
        return output.model_copy(update={"blocks": [TextBlock(text=os.urandom(4).hex())]})


class Shouting(Clean):
    """answer-in-prompt: in another case, deep in the task, by a name in camel case (and so exposed)."""

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [
            {**task, "meta": {"correctAnswer": str(task["word"])[::-1]}} for task in super().list_tasks(split)
        ]

    def get_prompt(self) -> Blocks:
        return [
            TextBlock(text=f"Say it backwards! Not so hard: ({str(self.task_spec['word'])[::-1].upper()})")
        ]


class Moody(Clean):
    """not-deterministic: one right answer in five is taken for a wrong one (so gold, too)."""

    @tool
    def guess(self, given: Guess) -> ToolOutput:
        """Gives your word."""
        return _graded(given.word == str(self.task_spec["word"])[::-1] and CHANCE.random() > 0.2)


class Overwritten(Clean):
    """not-apart: the task of whoever was set up last."""

    current: ClassVar[list[Any]] = []

    def setup(self) -> None:
        self.current[:] = [self.task_spec["word"]]

    @tool
    def guess(self, given: Guess) -> ToolOutput:
        """Gives your word."""
        return _graded(given.word == str(self.current[0])[::-1])


class Remembering(Clean):
    """not-apart: no reward tells it, only the text does."""

    rivals: ClassVar[set[object]] = set()

    def setup(self) -> None:
        self.rivals.add(self)

    def teardown(self) -> None:
        self.rivals.discard(self)

    @tool
    def guess(self, given: Guess) -> ToolOutput:
        """Gives your word."""
        output = _graded(given.word == str(self.task_spec["word"])[::-1])
        crowd = TextBlock(text=f"{len(self.rivals)} play")
        return output.model_copy(update={"blocks": [crowd]})


class Ungraded(Clean):
    """do-nothing: whatever is chosen is right."""

    @tool
    def guess(self, colour: Literal["red", "blue"] = "red", count: int = 1) -> ToolOutput:  # type: ignore[override]
        """Gives your choice."""
        return _graded(True)

    @classmethod
    def solve(cls, task_spec: JSONObject) -> list[tuple[str, JSONObject]]:
        return [("guess", {})]


class Guessing(Clean):
    """do-nothing: whatever number must be given, it is right."""

    @tool
    def guess(self, number: int) -> ToolOutput:  # type: ignore[override]
        """Gives your number."""
        return _graded(True)

    @classmethod
    def solve(cls, task_spec: JSONObject) -> list[tuple[str, JSONObject]]:
        return [("guess", {"number": 1})]


class Promising(Clean):
    """not-there: a tool that nobody serves; its schema is wrong, too."""

    def list_task_tools(self) -> ListToolsOutput:
        schema: JSONObject = {"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}, "required": "n"}
        return ListToolsOutput(tools=[ToolSpec(name="ghost", description="Boo.", input_schema=schema)])


class Littering(Clean):
    """files: beside the code, where no temporary folder is."""

    def setup(self) -> None:
        Path(OUTSIDE[0], f"{id(self)}-{os.urandom(4).hex()}.log").write_text("hello")


class Orphaning(Clean):
    """processes: the child of a shell that has ended."""

    pids: ClassVar[list[int]] = []

    def setup(self) -> None:
        done = subprocess.run(
            "sleep 600 > /dev/null 2>&1 & echo $!", shell=True, stdout=subprocess.PIPE, check=True
        )
        self.pids.append(int(done.stdout))


class Linking(Clean):
    """files: a link in the temporary folder."""

    def setup(self) -> None:
        os.symlink("nowhere", f"{tempfile.mktemp()}-link")


class Unhashed(Clean):
    """unstable: the order of a set, which is another one in every process."""

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"word": word} for word in set(WORDS[:5] if split == "train" else WORDS[5:])]


class HangingTool(Clean):
    """hangs: a call."""

    @tool
    def guess(self, given: Guess) -> ToolOutput:
        """Gives your word."""
        GOING_ON.wait()
        return _graded(False)


class HangingSetup(Clean):
    """hangs: a setup."""

    def setup(self) -> None:
        GOING_ON.wait()


class HangingList(Clean):
    """hangs: a listing."""

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        GOING_ON.wait()
        return []


class HangingTeardown(Clean):
    """teardown: does not end."""

    def teardown(self) -> None:
        GOING_ON.wait()


HIDDEN: dict[type[Environment], set[str]] = {
    Healthy: set(),
    Shouting: {"answer-in-prompt", "exposed"},
    Moody: {"not-deterministic", "gold"},
    Overwritten: {"not-apart"},
    Remembering: {"not-apart"},
    Ungraded: {"do-nothing"},
    Guessing: {"do-nothing"},
    Promising: {"not-there", "schema"},
    Littering: {"files"},
    Linking: {"files"},
    Orphaning: {"processes"},
}
HANGING: dict[type[Environment], str] = {
    HangingTool: "hangs",
    HangingSetup: "hangs",
    HangingList: "hangs",
    HangingTeardown: "teardown",
}
