"""Episodes as OpenAI Chat Completions messages, for supervised fine-tuning."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from ors.client import (
    Provider,
    ToolInvocation,
    ToolOutput,
    convert_prompt,
    convert_reply,
    convert_results,
    convert_tools,
)
from ors.providers.messages import AgentMessage, Message, SystemMessage, ToolMessage, UserMessage
from ors.rollouts.episodes.episode import EpisodeRecord
from ors.types import TextBlock

FORMAT: Provider = "openai-chat"
NOT_RUN = "Not run: the episode had ended."


@dataclass(slots=True)
class Turn:
    """A reply with its calls and their results. Every call has an id."""

    reply: AgentMessage
    calls: dict[str, ToolInvocation]
    results: list[tuple[str | None, ToolMessage]] = field(default_factory=list)
    """Each with the id of its call; None if it belongs to no call, as that of a terminal tool."""

    @property
    def unanswered(self) -> list[str]:
        """Ids of calls without a result: they were not run, because the episode had ended."""
        answered = {id for id, _ in self.results}
        return [id for id in self.calls if id not in answered]

    def add(self, result: ToolMessage) -> None:
        """Adds a result. It belongs to the first unanswered call with its id; without one, of its tool."""
        same = (id for id in self.unanswered if self.calls[id].id == result.call)
        found = (id for id in same if result.call or self.calls[id].name == result.name)
        self.results.append((next(found, None), result))


def turns(messages: Iterable[Message]) -> Iterator[SystemMessage | UserMessage | Turn]:
    """Groups messages. Calls without an id of their own get one: some providers send none, or repeat one."""
    current: Turn | None = None
    count = 0
    for message in messages:
        if current is not None and not isinstance(message, ToolMessage):
            yield current
            current = None
        match message:
            case SystemMessage() | UserMessage():
                yield message
            case AgentMessage():
                current = Turn(message, {})
                for each in message.calls:
                    id = each.id if each.id and each.id not in current.calls else f"ors_call_{count}"
                    current.calls[id] = each
                    count += 1
            case ToolMessage():
                # A server that records its sessions may know the calls only.
                current = current or Turn(AgentMessage(), {})
                current.add(message)
            case _:
                assert_never(message)
    if current is not None:
        yield current


def openai_example(record: EpisodeRecord) -> dict[str, Any]:
    """The messages and tools of an episode. Images are data URLs; reasoning is left out."""
    messages = [message for part in turns(record.messages) for message in _messages(part)]
    tools = {"tools": convert_tools(record.tools, FORMAT)} if record.tools else {}
    code = {name: told for name in ("version", "hash") if (told := getattr(record, name)) is not None}
    origin = {"metadata": {"environment": record.task.environment, **code}} if code else {}
    return {"messages": messages, **tools, **origin}


def _messages(part: SystemMessage | UserMessage | Turn) -> list[dict[str, Any]]:
    match part:
        case SystemMessage():
            return [{"role": "system", "content": part.text}]
        case UserMessage():
            return convert_prompt(part.blocks, FORMAT)
        case Turn():
            return _turn(part)
        case _:
            assert_never(part)


def _turn(turn: Turn) -> list[dict[str, Any]]:
    calls = {id: replace(call, id=id) for id, call in turn.calls.items()}
    said = convert_reply(turn.reply.text, list(calls.values()), FORMAT) if calls or turn.reply.text else []
    for call, made in zip(calls.values(), said[0]["tool_calls"] if calls else (), strict=True):
        if call.raw is not None:
            made["function"]["arguments"] = call.raw
    # The result of a terminal tool belongs to no call, and comes after the last reply.
    answers = [(calls[id], ToolOutput(blocks=told.blocks)) for id, told in turn.results if id is not None]
    answers += [(calls[id], ToolOutput(blocks=[TextBlock(text=NOT_RUN)])) for id in turn.unanswered]
    return [*said, *convert_results(answers, FORMAT)]
