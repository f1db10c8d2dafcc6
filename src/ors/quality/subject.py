"""The environment under test: plays its episodes."""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ors import Blocks, Environment, JSONObject, ToolSpec
from ors.client import AsyncEnvironment, AsyncSession
from ors.errors import ORSError, ToolCallError, ToolFailed
from ors.quality.findings import QualityReport
from ors.schemas import Inputs
from ors.types import RewardSpec, text_and_images

Action = tuple[str, JSONObject]
T = TypeVar("T")

LONGEST_ENDING_SECONDS = 10.0
"""Longest time to end an episode, including teardown."""


class Stuck(Exception):
    """Code of the environment took too long, so that the examination cannot go on."""


@dataclass(frozen=True)
class Sample:
    split: str
    index: int
    task: JSONObject
    """With private fields if the class is available; listings may omit them."""

    def __str__(self) -> str:
        text = ", ".join(f"{key}={value!r}" for key, value in self.task.items())
        return f"{self.split} {{{text if len(text) < 80 else text[:79] + '…'}}}"


@dataclass(frozen=True)
class ExaminationPlan:
    """Extent of an examination."""

    sample: int = 5
    """Tasks to open per split."""
    steps: int = 10
    """Highest number of calls in an episode."""
    repeat: int = 3
    """Plays of the same actions to compare their rewards; more if there are few samples."""
    episodes: int = 50
    """Episodes over which memory must stay constant."""
    most: int = 300
    """Most episodes to play in all: a judge may cost money."""
    seconds: float = 20.0
    """Longest time for all episodes of the memory test."""
    patience: float = 60.0
    """Longest time for a listing, a setup, a prompt or a call, each on its own."""
    seed: int = 0
    secrets: Mapping[str, str] = field(default_factory=dict)
    traceback: bool = False
    """Whether findings show whole tracebacks, instead of the author's line."""

    @property
    def ending_seconds(self) -> float:
        return min(LONGEST_ENDING_SECONDS, self.patience)


@dataclass(frozen=True)
class Move:
    reward: float | None
    finished: bool
    text: str
    error: str = ""
    reason: str | None = None
    """Reason of a refused call."""
    failed: bool = False
    """Whether the tool raised."""
    names: tuple[str, ...] = ()
    """Names of its rewards."""


@dataclass(frozen=True)
class OpenedEpisode:
    session: AsyncSession
    tools: list[ToolSpec]
    prompt: Blocks


@dataclass
class EnvironmentUnderTest:
    """An environment, used through its client, and its class if that is available."""

    env: AsyncEnvironment
    plan: ExaminationPlan
    report: QualityReport
    cls: type[Environment] | None = None
    rewards: RewardSpec = field(default_factory=RewardSpec)
    """What it declares of its rewards."""
    elsewhere: AsyncEnvironment | None = None
    """Client of the same environment in another process."""
    samples: list[Sample] = field(default_factory=list)
    tools: list[ToolSpec] = field(default_factory=list)
    played: int = 0
    """Episodes so far."""
    stuck: str = ""
    """Description of code that took too long; after that nothing more is tried."""
    traced: bool = False
    """Whether memory is traced. That makes everything several times slower, so nothing hangs then."""

    async def within(self, what: str, work: Awaitable[T]) -> T:
        """Awaits `work` with a time limit.

        Raises:
            Stuck: it takes too long, which is reported.
        """
        seconds = max(self.plan.patience, self.plan.seconds) if self.traced else self.plan.patience
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            raise self._give_up("hangs", what, seconds) from None

    @asynccontextmanager
    async def opened(self, sample: Sample) -> AsyncIterator["OpenedEpisode"]:
        """Yields an episode of a task, set up and with its prompt read, as trainers do.

        Raises:
            ORSError: it does not open. Stuck: it takes too long to open or to end, which is reported; or it
                would be one too many.
        """
        if self.played == self.plan.most:
            self.stuck = self.report.not_tried["more"] = f"--max-episodes {self.plan.most}"
            raise Stuck(self.stuck)
        self.played += 1
        session = self.env.session(secrets=self.plan.secrets, split=sample.split, index=sample.index)
        await self.within("opening an episode", session.start())
        try:
            # The first request that needs the environment waits for its setup.
            tools = await self.within("the setup (__init__ and setup)", session.list_tools(terminal=True))
            yield OpenedEpisode(session, tools, await self.within("get_prompt()", session.get_prompt()))
        finally:
            clock = asyncio.get_running_loop()
            began = clock.time()
            await session.close()
            if clock.time() - began >= self.plan.ending_seconds and not self.stuck:
                raise self._give_up("teardown", "ending an episode", self.plan.ending_seconds)

    async def play(self, sample: Sample, actions: Sequence[Action]) -> list[Move]:
        moves = []
        async with self.opened(sample) as episode:
            for action in actions:
                moves.append(await self.move(episode.session, action))
                if moves[-1].finished:
                    break
        self._check_rewards(sample, moves)
        return moves

    def _check_rewards(self, sample: Sample, moves: Sequence[Move]) -> None:
        given = [move.reward for move in moves if move.reward is not None]
        if not given or any(move.failed for move in moves):
            return
        names = [name for move in moves for name in move.names]
        if misfit := self.rewards.misfit(sum(given), given[-1], names):
            self.report.found("declared-reward", misfit, where=str(sample))

    async def try_play(self, sample: Sample, actions: Sequence[Action]) -> list[Move]:
        """Plays actions; a session that does not open or is lost is reported, and has no moves."""
        try:
            return await self.play(sample, actions)
        except ORSError as error:
            text = f"an episode ended early: {reason(error)}"
            self.report.found("episode", text, where=str(sample))
            return []

    async def move(self, session: AsyncSession, action: Action) -> Move:
        """Makes one call; returns its result, also if it was refused or failed.

        Raises:
            ORSError: the session is lost.
        """
        try:
            output = await self.within(f"a call of {action[0]}", session.call_tool(*action))
        except ToolCallError as refusal:
            return Move(None, False, "", error=str(refusal), reason=refusal.reason or "refused")
        except ToolFailed as failure:
            return Move(None, False, "", error=str(failure), failed=True)
        text, _ = text_and_images(output.blocks)
        return Move(output.reward, output.finished, text, names=tuple(output.rewards))

    def _give_up(self, id: str, what: str, seconds: float) -> Stuck:
        self.stuck = f"{what} takes longer than {seconds:g} s"
        if self.traced:
            self.report.not_tried["memory"] = f"{self.stuck} while memory is traced"
            return Stuck(self.stuck)
        fix = "Make it return, or limit its time. --patience allows more time for calls."
        self.report.found(id, self.stuck, fix=fix)
        return Stuck(self.stuck)

    def random_actions(self, tools: Sequence[ToolSpec], seed: int) -> list[Action]:
        """Calls of random tools with random valid inputs; the same for the same seed."""
        source = random.Random(seed)
        inputs = Inputs(source)
        made: list[Action] = []
        for _ in range(self.plan.steps if tools else 0):
            tool = source.choice(list(tools))
            made.append((tool.name, inputs.make(tool.input_schema)))
        return made


def earned(moves: Iterable[Move]) -> float:
    return float(sum(move.reward or 0.0 for move in moves))


def parted(error: str) -> tuple[str, str]:
    """The message of an error, and the author's line or the traceback that came with it."""
    what, begins, trace = error.partition(": Traceback (most recent call last):\n")
    if begins:
        return f"{what}: {trace.splitlines()[-1]}", trace
    message, begins, line = error.partition("\n  File ")
    return message, f"  File {line}" if begins else ""


def reason(error: ORSError | Exception) -> str:
    text = " ".join(parted(str(error))[0].split()) or type(error).__name__
    return text if len(text) < 300 else text[:299] + "…"


def short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) < 160 else line[:159] + "…"


def looks_like_answer(name: str) -> bool:
    """Whether the name of a field suggests that it contains the solution."""
    word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_")  # correctAnswer too
    return any(part in ANSWERS for part in word.split("_")) or word in ANSWERS


ANSWERS = {
    *("answer", "answers", "solution", "solutions", "gold", "golden", "label", "labels", "expected"),
    *("ground_truth", "groundtruth", "truth", "correct", "secret"),
}


def answers(task: Mapping[str, Any]) -> list[str]:
    """Values of the task's fields whose names suggest an answer."""
    found: list[str] = []
    for name, value in task.items():
        if isinstance(value, Mapping):
            found += answers(value)
        elif looks_like_answer(name):
            values = value if isinstance(value, list) else [value]
            found += [str(each) for each in values if isinstance(each, str | int | float)]
    return list(filter(str.strip, found))
