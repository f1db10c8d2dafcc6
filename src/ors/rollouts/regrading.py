"""New rewards for recorded episodes, without the agent: from `grade` of their environment, or by a replay."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from ors._rewards import REWARD_COMPONENTS
from ors.client import AsyncEnvironment, ToolInvocation
from ors.errors import ORSError
from ors.providers.messages import Message, ToolMessage
from ors.rollouts.episodes.episode import EpisodeRecord, TaskRef
from ors.rollouts.episodes.outcome import Failed, Scored, Unscored, ended, session_failed
from ors.rollouts.episodes.rules import Rules
from ors.rollouts.regression import is_replayable, replayed, steps
from ors.types import ToolOutput

DIFFERS = "ResultsDiffer"
"""The error of an episode whose calls have other results now: the agent might have gone on in another way."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """A recorded episode, as `Environment.grade` gets it."""

    task: TaskRef
    messages: tuple[Message, ...]
    """The conversation. Its tool messages have the rewards that were given at the time."""

    @property
    def calls(self) -> list[tuple[ToolInvocation | None, ToolMessage]]:
        """The calls that have run, each with its result. One of a terminal tool has no invocation."""
        return [(each.invocation, each.recorded) for each in steps(self.messages) if each.recorded]


Grader = Callable[[Transcript], Any]


def has_grade(cls: type) -> bool:
    """Whether an environment class has a method `grade(self, transcript)`.

    A tool, or a method of that name with another parameter, is none.
    """
    found = getattr(cls, "grade", None)
    if not callable(found) or getattr(found, "_env_tool", False):
        return False
    wanted = [each for each in inspect.signature(found).parameters.values() if each.default is each.empty]
    return [each.name for each in wanted if each.name != "self"] == ["transcript"]


async def graded(record: EpisodeRecord, grader: Callable[[TaskRef], Awaitable[Grader]]) -> EpisodeRecord:
    """The episode with the reward that the grader of its task gives. A failed one stays as it is.

    If the grader raises, or returns what is no reward, the environment has failed: there is no reward.
    """
    if isinstance(record.outcome, Failed):
        return record
    try:
        grade = await grader(record.task)
        given = await asyncio.to_thread(grade, Transcript(record.task, record.messages))
        output = _output(await given if inspect.isawaitable(given) else given)
    except Exception as error:
        return _failed(
            record, Failed("environment", "closing", type(error).__name__, f"grade(): {error}"[:2000])
        )
    messages = [_unrewarded(each) for each in record.messages]
    for place, last in reversed(list(enumerate(messages))):
        if isinstance(last, ToolMessage):
            metadata = {**(last.metadata or {}), **(output.metadata or {})}
            messages[place] = replace(last, reward=output.reward, metadata=metadata or None)
            break
    return _scored(record, messages, output.reward, output.rewards)


def _output(given: Any) -> ToolOutput:
    """What a grader returned: a number, named rewards, a ToolOutput, or None for no reward."""
    if isinstance(given, Mapping):
        return ToolOutput(blocks=[], rewards=given)
    reward = given.reward if isinstance(given, ToolOutput) else given
    if reward is None or (isinstance(reward, int | float) and isfinite(reward)):
        output = ToolOutput(blocks=[], reward=None if reward is None else float(reward))
        return given if isinstance(given, ToolOutput) else output
    raise TypeError(f"returned {given!r:.100}, not a finite number, named rewards or a ToolOutput")


def _unrewarded(message: Message) -> Message:
    if not isinstance(message, ToolMessage):
        return message
    kept = {name: value for name, value in (message.metadata or {}).items() if name != REWARD_COMPONENTS}
    return replace(message, reward=None, metadata=kept or None)


async def played_again(
    environment: AsyncEnvironment,
    record: EpisodeRecord,
    rules: Rules,
    secrets: Mapping[str, str] | None = None,
) -> EpisodeRecord:
    """The episode with the rewards that its calls earn now. A failed one stays as it is.

    If a call has another result than it had, the episode fails with the error `ResultsDiffer`.
    """
    if isinstance(record.outcome, Failed):
        return record
    if not is_replayable(record):
        return _failed(
            record, Failed("infrastructure", "opening", "TaskUnknown", "The run has no task of it")
        )
    try:
        differences, results = await replayed(environment, record, secrets)
    except ORSError as error:
        return _failed(record, session_failed(error, "call"))
    for each in differences:
        if each.what in ("result", "finished"):
            text = (
                f"call {each.step}, {each.tool}: {each.what} was {each.recorded!r:.200}, is {each.now!r:.200}"
            )
            return _failed(record, Failed("environment", "call", DIFFERS, text))
    return _with_results(record, iter(results), rules)


def _with_results(record: EpisodeRecord, results: Iterable[ToolMessage], rules: Rules) -> EpisodeRecord:
    ran = {id(each.recorded): result for each, result in zip(steps(record.messages), results, strict=True)}
    messages = [ran.get(id(each), each) for each in record.messages]
    rewards = [each.reward for each in messages if isinstance(each, ToolMessage)]
    outcome = _outcome(record, rewards)
    return _scored(record, messages, rules.score(outcome, rewards), rules.components(outcome, messages))


def _scored(
    record: EpisodeRecord, messages: Iterable[Message], reward: float | None, components: Mapping[str, float]
) -> EpisodeRecord:
    messages = tuple(messages)
    return replace(
        record,
        outcome=_outcome(record, [reward]),
        reward=reward,
        rewards=tuple(each.reward for each in messages if isinstance(each, ToolMessage)),
        messages=messages,
        components=components,
    )


def _outcome(record: EpisodeRecord, rewards: Iterable[float | None]) -> Any:
    return ended(rewards) if isinstance(record.outcome, Scored | Unscored) else record.outcome


def _failed(record: EpisodeRecord, outcome: Failed) -> EpisodeRecord:
    return replace(record, outcome=outcome, reward=None, components={})
