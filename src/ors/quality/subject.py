"""The environment under examination, and how episodes of it are played."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ors import Environment, JSONObject, TextBlock, ToolSpec
from ors.client import AsyncEnvironment, AsyncSession, Task
from ors.errors import ORSError, ToolCallError, ToolFailed
from ors.quality.findings import Report
from ors.quality.inputs import Inputs

Action = tuple[str, JSONObject]


@dataclass(frozen=True)
class Plan:
    """How thoroughly to examine."""

    sample: int = 5
    """Tasks of each split that are opened."""
    steps: int = 10
    """Most calls in an episode."""
    repeat: int = 2
    """How often the same actions are played to compare their rewards."""
    episodes: int = 50
    """Episodes over which memory has to stay flat."""
    seconds: float = 20.0
    """How long the memory's episodes may take together."""
    seed: int = 0
    secrets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Move:
    """What one call gave."""

    reward: float | None
    finished: bool
    text: str
    error: str = ""
    reason: str | None = None
    """Why the call was refused, if it was."""
    failed: bool = False
    """Whether the tool raised."""


@dataclass
class Subject:
    """One environment: by its client, and by its class if that is at hand."""

    env: AsyncEnvironment
    plan: Plan
    report: Report
    cls: type[Environment] | None = None
    tasks: dict[str, list[JSONObject]] = field(default_factory=dict)
    """The sampled tasks by split."""
    tools: list[ToolSpec] = field(default_factory=list)

    def sampled(self) -> Iterable[tuple[str, JSONObject]]:
        """Each sampled task with the name of its split."""
        return ((split, task) for split, tasks in self.tasks.items() for task in tasks)

    def session(self, task: JSONObject) -> AsyncSession:
        """A session of a task, not open yet."""
        return self.env.session(Task(self.env.name, task), self.plan.secrets)

    async def play(self, task: JSONObject, actions: Sequence[Action]) -> list[Move]:
        """Plays actions on a new session until the episode is finished.

        Raises:
            ORSError: the session does not open, or is lost.
        """
        moves = []
        async with self.session(task) as session:
            for action in actions:
                moves.append(await move(session, action))
                if moves[-1].finished:
                    break
        return moves

    def random_actions(self, tools: Sequence[ToolSpec], seed: int) -> list[Action]:
        """Calls of random tools with random inputs that fit their schemas; the same for the same seed."""
        source = random.Random(seed)
        inputs = Inputs(source)
        made: list[Action] = []
        for _ in range(self.plan.steps if tools else 0):
            tool = source.choice(list(tools))
            made.append((tool.name, inputs.make(tool.input_schema)))
        return made


async def move(session: AsyncSession, action: Action) -> Move:
    """One call and what it gave, also when it was refused or failed.

    Raises:
        ORSError: the session is lost.
    """
    try:
        output = await session.call_tool(*action)
    except ToolCallError as refusal:
        return Move(None, False, "", error=str(refusal), reason=refusal.reason or "refused")
    except ToolFailed as failure:
        return Move(None, False, "", error=str(failure), failed=True)
    text = "\n".join(block.text for block in output.blocks if isinstance(block, TextBlock))
    return Move(output.reward, output.finished, text)


def earned(moves: Iterable[Move]) -> float:
    """The sum of the rewards."""
    return float(sum(move.reward or 0.0 for move in moves))


def named(split: str, task: JSONObject) -> str:
    """A task in a few words."""
    text = ", ".join(f"{key}={value!r}" for key, value in task.items())
    return f"{split} {{{text if len(text) < 80 else text[:79] + '…'}}}"


def reason(error: ORSError | Exception) -> str:
    """An error in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) < 300 else text[:299] + "…"


def looks_like_answer(name: str) -> bool:
    """Whether a field is named like one that holds the solution."""
    word = name.lower().replace("-", "_")
    return any(part in ANSWERS for part in word.split("_")) or word in ANSWERS


ANSWERS = {
    "answer",
    "answers",
    "solution",
    "solutions",
    "gold",
    "golden",
    "label",
    "labels",
    "expected",
    "ground_truth",
    "groundtruth",
    "truth",
    "correct",
    "secret",
}


def answers(task: Mapping[str, Any]) -> list[str]:
    """The values of a task's fields that are named like answers."""
    found: list[str] = []
    for name, value in task.items():
        if isinstance(value, Mapping):
            found += answers(value)
        elif looks_like_answer(name):
            values = value if isinstance(value, list) else [value]
            found += [
                str(each) for each in values if isinstance(each, str | int | float) and str(each).strip()
            ]
    return found
