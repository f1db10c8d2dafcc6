"""Recorded episodes without their agent: their calls run again, and their rewards recomputed."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Literal, assert_never

from ors._masking import masked
from ors._rewards import REWARD_COMPONENTS
from ors.client import AsyncEnvironment, AsyncSession, ToolInvocation
from ors.errors import ORSError, ServerFailed, ToolCallError, ToolFailed
from ors.providers.messages import AgentMessage, Message, SystemMessage, ToolMessage, UserMessage, text_blocks
from ors.rollouts.episodes.episode import EpisodeRecord, TaskRef, mask_of, session_for
from ors.rollouts.episodes.outcome import Failed, Outcome, Scored, Unscored, ended, is_lost, session_failed
from ors.rollouts.episodes.rules import Rules
from ors.types import Blocks, ToolOutput, ToolSpec

Kind = Literal["tools", "prompt", "result", "reward", "finished"]
DIFFERS = "ResultsDiffer"
"""The error of an episode whose calls have other results now: the agent might have gone on in another way."""

_UNKNOWN = Failed("infrastructure", "opening", "TaskUnknown", "The run does not have its task")
_SLOW = Failed("environment", "call", "TimeoutError", "It took much longer than in the recording")


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that differs from the record."""

    what: Kind
    recorded: Any
    now: Any
    """Both as JSON."""
    step: int | None = None
    """The number of the call in its episode, from 1."""
    tool: str = ""


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """One recorded call. Without an invocation, it is of the `@terminal` tool, with the agent's last text."""

    invocation: ToolInvocation | None
    text: str
    recorded: ToolMessage | None
    """None if it failed: the environment raised."""


def is_replayable(record: EpisodeRecord) -> bool:
    """Whether the calls of a record can be played again: its task is known, it began, and was not lost."""
    outcome = record.outcome
    not_begun = isinstance(outcome, Failed) and outcome.stage in ("opening", "prompt")
    return (record.task.spec is not None or record.task.index is not None) and not (
        not_begun or is_lost(outcome)
    )


async def replay(
    environment: AsyncEnvironment, record: EpisodeRecord, secrets: Mapping[str, str] | None = None
) -> tuple[list[Difference], list[ToolMessage]]:
    """Plays the calls of a record; returns what differs, and the recorded results with their current rewards.

    It stops if the episode ends at a different call, since the calls after that mean nothing.

    Raises:
        ORSError: the session cannot be opened, or is lost.
    """
    # The environment may have another name now.
    task = replace(record.task, environment=environment.name)
    async with session_for(environment, task, secrets) as session:
        found = [*await _tools(environment, session, record), *await _prompt(session, record)]
        results = []
        for number, step in enumerate(steps(record.messages, record.outcome), 1):
            now = masked(await _played(session, step), mask_of(session))
            differences = list(_differences(number, masked(step, mask_of(session)), now))
            found += differences
            if step.recorded is not None and isinstance(now, ToolMessage):
                results.append(replace(step.recorded, reward=now.reward, metadata=now.metadata))
            if any(each.what == "finished" for each in differences):
                break
        return found, results


# ── Tools and prompt ─────────────────────────────────────────────────────────────────────────────


async def _tools(
    environment: AsyncEnvironment, session: AsyncSession, record: EpisodeRecord
) -> list[Difference]:
    """The difference of the tools. Agents ask for those of the task, or for those that all tasks share."""
    if not record.tools:
        return []
    recorded, now = _by_name(record.tools), _by_name(masked(await session.list_tools(), mask_of(session)))
    if recorded == now or recorded == _by_name(await environment.list_tools()):
        return []
    changed = [name for name in {**recorded, **now} if recorded.get(name) != now.get(name)]
    before, after = ({name: each[name] for name in changed if name in each} for each in (recorded, now))
    return [Difference("tools", before, after)]


def _by_name(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    return {tool.name: tool.model_dump(exclude={"name"}) for tool in tools}


async def _prompt(session: AsyncSession, record: EpisodeRecord) -> list[Difference]:
    prompts = (each.blocks for each in record.messages if isinstance(each, UserMessage))
    recorded = masked(next(prompts, None), mask_of(session))
    if recorded is None:
        return []
    try:
        now = masked(await session.get_prompt(), mask_of(session))
    except ServerFailed as error:
        return [Difference("prompt", _plain(recorded), str(error))]
    return [] if now == recorded else [Difference("prompt", _plain(recorded), _plain(now))]


# ── Calls ────────────────────────────────────────────────────────────────────────────────────────


def steps(messages: Iterable[Message], outcome: Outcome | None = None) -> Iterator[ReplayStep]:
    """The calls that have run, in their order."""
    calls: list[ToolInvocation] = []
    text = ""
    for message in messages:
        match message:
            case SystemMessage() | UserMessage():
                pass
            case AgentMessage():
                calls, text = list(message.calls), message.text
            case ToolMessage():
                invocation = _taken(calls, message)
                if invocation is None or invocation.error is None:
                    yield ReplayStep(invocation, text, message)
            case _:
                assert_never(message)
    failed = isinstance(outcome, Failed) and outcome.stage == "call"
    if failed and calls and calls[0].error is None:
        yield ReplayStep(calls[0], text, None)


def _taken(calls: list[ToolInvocation], result: ToolMessage) -> ToolInvocation | None:
    """Takes the call of a result out of the calls that have none yet."""
    for number, call in enumerate(calls):
        if call.id == result.call and call.name == result.name:
            return calls.pop(number)
    return None


async def _played(session: AsyncSession, step: ReplayStep) -> ToolMessage | str:
    """The result of a call now, or why the tool failed."""
    try:
        if step.invocation is not None:
            output = await session.call_tool(step.invocation.name, step.invocation.input)
        else:
            output = await session.call_terminal_tool(step.text)
    except ToolCallError as refusal:
        return ToolMessage(None, "", text_blocks(str(refusal)), False, refusal.reason)
    except ToolFailed as error:
        return str(error)
    return ToolMessage(
        None, "", output.blocks, reward=output.reward, finished=output.finished, metadata=output.metadata
    )


def _differences(number: int, step: ReplayStep, now: ToolMessage | str) -> Iterator[Difference]:
    before = step.recorded
    tool = step.invocation.name if step.invocation is not None else before.name if before is not None else ""
    if before is None or isinstance(now, str):
        if not (isinstance(now, str) and _has_failed(before, now)):
            yield Difference("result", _result(before), _result(now), number, tool)
        return
    if (before.ok, before.reason, before.blocks) != (now.ok, now.reason, now.blocks):
        yield Difference("result", _result(before), _result(now), number, tool)
    if before.reward != now.reward:
        yield Difference("reward", before.reward, now.reward, number, tool)
    if before.finished != now.finished:
        yield Difference("finished", before.finished, now.finished, number, tool)


def _has_failed(before: ToolMessage | None, error: str) -> bool:
    """Whether the call failed like this when it was recorded. Servers record the text of a failure."""
    return before is None or (not before.ok and before.blocks == text_blocks(error))


def _result(message: ToolMessage | str | None) -> Any:
    if message is None:
        return {"failed": True}
    if isinstance(message, str):
        return {"failed": True, "error": message}
    if message.ok:
        return _plain(message.blocks)
    return {"refused": True, "reason": message.reason, "blocks": _plain(message.blocks)}


def _plain(blocks: Blocks) -> list[dict[str, Any]]:
    return [block.model_dump(exclude_none=True) for block in blocks]


# ── New rewards ──


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

    If the grader raises, or returns something else, the environment has failed: there is no reward.
    """
    if isinstance(record.outcome, Failed):
        return record
    if not is_replayable(record):
        return _failed(record, _UNKNOWN)
    try:
        grade = await grader(record.task)
        given = await asyncio.to_thread(grade, Transcript(record.task, record.messages))
        output = _output(await given if inspect.isawaitable(given) else given)
    except Exception as error:
        return _failed(
            record, Failed("environment", "closing", type(error).__name__, f"grade(): {error}"[:2000])
        )
    places = [place for place, each in enumerate(record.messages) if isinstance(each, ToolMessage)]
    nothing = ToolOutput(blocks=[])
    messages = [
        _rewarded(each, output if [place] == places[-1:] else nothing)
        for place, each in enumerate(record.messages)
    ]
    return _scored(record, messages, output.reward, output.rewards)


def _output(given: Any) -> ToolOutput:
    """What a grader returned: a number, named rewards, a ToolOutput, or None for no reward."""
    if isinstance(given, Mapping):
        return ToolOutput(blocks=[], rewards=given)
    reward = given.reward if isinstance(given, ToolOutput) else given
    if reward is not None and not (isinstance(reward, int | float) and isfinite(reward)):
        raise TypeError(f"returned {given!r:.100}, not a finite number, named rewards or a ToolOutput")
    return given if isinstance(given, ToolOutput) else ToolOutput(blocks=[], reward=given)


def _rewarded(message: Message, output: ToolOutput) -> Message:
    """The message with the reward and metadata of `output`, in place of the reward that it had."""
    if not isinstance(message, ToolMessage):
        return message
    metadata = {name: value for name, value in (message.metadata or {}).items() if name != REWARD_COMPONENTS}
    metadata |= output.metadata or {}
    return replace(message, reward=output.reward, metadata=metadata or None)


async def played_again(
    environment: AsyncEnvironment,
    record: EpisodeRecord,
    rules: Rules,
    secrets: Mapping[str, str],
    seconds: float,
) -> EpisodeRecord:
    """The episode with the rewards that its calls earn now. A failed one stays as it is.

    If the result of a call has changed, the episode fails with the error `ResultsDiffer`.
    """
    if isinstance(record.outcome, Failed):
        return record
    if not is_replayable(record):
        return _failed(record, _UNKNOWN)
    try:
        async with asyncio.timeout(seconds):
            differences, results = await replay(environment, record, secrets)
    except TimeoutError:
        return _failed(record, _SLOW)
    except ORSError as error:
        return _failed(record, session_failed(error, "call"))
    for each in differences:
        if each.what in ("result", "finished"):
            change = f"was {each.recorded!r:.200}, is now {each.now!r:.200}"
            text = f"call {each.step}, {each.tool}: {each.what} {change}"
            return _failed(record, Failed("environment", "call", DIFFERS, text))
    ran = zip((step.recorded for step in steps(record.messages)), results, strict=True)
    now = {id(recorded): result for recorded, result in ran}
    messages = [now.get(id(each), each) for each in record.messages]
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
