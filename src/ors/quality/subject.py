"""The environment under examination, and how episodes of it are played."""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ors import Environment, JSONObject, TextBlock, ToolSpec
from ors.client import AsyncEnvironment, AsyncSession
from ors.errors import ORSError, ToolCallError, ToolFailed
from ors.quality.findings import QualityReport
from ors.schemas import Inputs

Action = tuple[str, JSONObject]
T = TypeVar("T")

LONGEST_ENDING_SECONDS = 10.0
"""What the end of an episode may take, the teardown included."""


class Stuck(ORSError):
    """Something of the environment did not come to an end."""


@dataclass(frozen=True)
class Sample:
    """One task that is examined."""

    split: str
    index: int
    task: JSONObject
    """Whole, where the class is at hand: listings may leave private fields out."""

    def __str__(self) -> str:
        text = ", ".join(f"{key}={value!r}" for key, value in self.task.items())
        return f"{self.split} {{{text if len(text) < 80 else text[:79] + '…'}}}"


@dataclass(frozen=True)
class TestPlan:
    """How thoroughly to examine."""

    sample: int = 5
    """Tasks of each split that are opened."""
    steps: int = 10
    """Most calls in an episode."""
    repeat: int = 3
    """How often the same actions are played to compare their rewards; more often where samples are few."""
    episodes: int = 50
    """Episodes over which memory has to stay flat."""
    seconds: float = 20.0
    """How long the memory's episodes may take together."""
    patience: float = 60.0
    """How long a listing, a setup, a prompt or a call may take."""
    seed: int = 0
    secrets: Mapping[str, str] = field(default_factory=dict)

    @property
    def ending_seconds(self) -> float:
        """How long the end of an episode may take."""
        return min(LONGEST_ENDING_SECONDS, self.patience)


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
class EnvironmentUnderTest:
    """One environment: by its client, and by its class if that is at hand."""

    env: AsyncEnvironment
    plan: TestPlan
    report: QualityReport
    cls: type[Environment] | None = None
    elsewhere: AsyncEnvironment | None = None
    """The same environment, served by another process."""
    samples: list[Sample] = field(default_factory=list)
    tools: list[ToolSpec] = field(default_factory=list)
    stuck: str = ""
    """What did not come to an end: nothing more is tried then."""

    async def within(self, what: str, work: Awaitable[T]) -> T:
        """What `work` gives.

        Raises:
            Stuck: it takes too long; this is reported.
        """
        try:
            async with asyncio.timeout(self.plan.patience):
                return await work
        except TimeoutError:
            raise self._give_up("hangs", what, self.plan.patience) from None

    @asynccontextmanager
    async def session(self, sample: Sample) -> AsyncIterator[AsyncSession]:
        """A session of a task.

        Raises:
            ORSError: it does not open. Stuck: its end takes too long; this is reported.
        """
        session = self.env.session(secrets=self.plan.secrets, split=sample.split, index=sample.index)
        await self.within("opening an episode", session.start())
        try:
            yield session
        finally:
            clock = asyncio.get_running_loop()
            began = clock.time()
            await session.close()
            if clock.time() - began >= self.plan.ending_seconds and not self.stuck:
                raise self._give_up("teardown", "the end of an episode", self.plan.ending_seconds)

    async def play(self, sample: Sample, actions: Sequence[Action]) -> list[Move]:
        """Plays actions on a new session until the episode is finished.

        Raises:
            ORSError: the session does not open, or is lost.
        """
        moves = []
        async with self.session(sample) as session:
            for action in actions:
                moves.append(await self.move(session, action))
                if moves[-1].finished:
                    break
        return moves

    async def move(self, session: AsyncSession, action: Action) -> Move:
        """One call and what it gave, also when it was refused or failed.

        Raises:
            ORSError: the session is lost.
        """
        try:
            output = await self.within(f"a call of {action[0]}", session.call_tool(*action))
        except ToolCallError as refusal:
            return Move(None, False, "", error=str(refusal), reason=refusal.reason or "refused")
        except ToolFailed as failure:
            return Move(None, False, "", error=str(failure), failed=True)
        text = "\n".join(block.text for block in output.blocks if isinstance(block, TextBlock))
        return Move(output.reward, output.finished, text)

    def _give_up(self, id: str, what: str, seconds: float) -> Stuck:
        self.stuck = f"{what} takes longer than {seconds:g} s"
        fix = "Let it come to an end, or limit its time; --patience waits longer for calls."
        self.report.found(id, self.stuck, fix)
        return Stuck(self.stuck)

    def random_actions(self, tools: Sequence[ToolSpec], seed: int) -> list[Action]:
        """Calls of random tools with random inputs that fit their schemas; the same for the same seed."""
        source = random.Random(seed)
        inputs = Inputs(source)
        made: list[Action] = []
        for _ in range(self.plan.steps if tools else 0):
            tool = source.choice(list(tools))
            made.append((tool.name, inputs.make(tool.input_schema)))
        return made


def earned(moves: Iterable[Move]) -> float:
    """The sum of the rewards."""
    return float(sum(move.reward or 0.0 for move in moves))


def reason(error: ORSError | Exception) -> str:
    """An error in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) < 300 else text[:299] + "…"


def short(text: str) -> str:
    """A text in one line of bearable length."""
    line = " ".join(text.split())
    return line if len(line) < 160 else line[:159] + "…"


def looks_like_answer(name: str) -> bool:
    """Whether a field is named like one that holds the solution."""
    word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_")  # correctAnswer too
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
