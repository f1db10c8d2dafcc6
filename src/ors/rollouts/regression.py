"""Plays the calls of a record again, without a model, and says what differs now."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, assert_never

from ors._masking import masked
from ors.client import AsyncEnvironment, AsyncSession, ToolInvocation
from ors.errors import ORSError, ServerFailed, ToolCallError, ToolFailed
from ors.providers.messages import AgentMessage, Message, SystemMessage, ToolMessage, UserMessage, text_blocks
from ors.rollouts.episodes.episode import EpisodeRecord
from ors.rollouts.episodes.outcome import Failed, Outcome, is_lost, session_failed
from ors.rollouts.episodes.task import mask_of, session_for
from ors.types import Blocks, ToolSpec

Kind = Literal["tools", "prompt", "result", "reward", "finished"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that is not as it was recorded."""

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
    """Whether the calls of a record can be played again: its task is known, and no infrastructure failed."""
    return not is_lost(record.outcome) and (record.task.spec is not None or record.task.index is not None)


def failed_alike(record: EpisodeRecord, error: ORSError) -> bool:
    """Whether the recorded episode could not be begun either, for the same reason."""
    begun = _failed_beginning(record)
    return begun is not None and begun == session_failed(error, begun.stage)


def _failed_beginning(record: EpisodeRecord) -> Failed | None:
    """The outcome of an episode that failed before its first turn."""
    outcome = record.outcome
    return outcome if isinstance(outcome, Failed) and outcome.stage in ("opening", "prompt") else None


async def replay(
    environment: AsyncEnvironment, record: EpisodeRecord, secrets: Mapping[str, str] | None = None
) -> list[Difference]:
    """Plays the calls of a record, and returns what differs.

    It stops when the episode ends at another call than it did, since the calls after that mean nothing.

    Raises:
        ORSError: the session cannot be opened, or is lost.
    """
    return (await replayed(environment, record, secrets))[0]


async def replayed(
    environment: AsyncEnvironment, record: EpisodeRecord, secrets: Mapping[str, str] | None = None
) -> tuple[list[Difference], list[ToolMessage]]:
    """The same, and the recorded results with the rewards and metadata of now."""
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
    before = {name: recorded[name] for name in changed if name in recorded}
    after = {name: now[name] for name in changed if name in now}
    return [Difference("tools", before, after)]


def _by_name(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    return {tool.name: tool.model_dump(exclude={"name"}) for tool in tools}


async def _prompt(session: AsyncSession, record: EpisodeRecord) -> list[Difference]:
    prompts = (each.blocks for each in record.messages if isinstance(each, UserMessage))
    recorded = masked(next(prompts, None), mask_of(session))
    before: Any = _failure(record) if recorded is None else _plain(recorded)
    if before is None:
        return []
    try:
        now = masked(await session.get_prompt(), mask_of(session))
    except ServerFailed as error:
        if recorded is None:
            raise  # `failed_alike` compares the two failures
        return [Difference("prompt", before, str(error))]
    return [] if now == recorded else [Difference("prompt", before, _plain(now))]


def _failure(record: EpisodeRecord) -> dict[str, Any] | None:
    failed = _failed_beginning(record)
    return None if failed is None else {"failed": True, "error": failed.message}


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
    told = ToolMessage(None, "", output.blocks, reward=output.reward, finished=output.finished)
    return replace(told, metadata=output.metadata)


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
