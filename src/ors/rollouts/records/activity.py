"""What tables tell of a conversation without its messages: times, and what the agent did."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ors._json import dumps
from ors.providers.messages import AgentMessage, Count, Message, Seconds, ToolInvocation, ToolMessage


@dataclass(frozen=True, slots=True)
class LineTimes:
    """Seconds of each model request and of each call: those of the messages, for tables."""

    model: tuple[Seconds, ...] = ()
    calls: tuple[Seconds, ...] = ()


@dataclass(frozen=True, slots=True)
class Actions:
    """What the agent did, for tables: it tells episodes apart without their messages."""

    calls: Count = 0
    """Calls that the agent made. That of a terminal tool is not its own."""
    characters: Count = 0
    """Characters of its texts and of the inputs of its calls."""
    answer: str | None = None
    """Digest of its answer: the input of the last call that earned a reward or ended the episode, or its last
    text. None if it gave none."""
    sequence: str | None = None
    """Digest of all its calls, or of its answer if it made none."""


def times(messages: Sequence[Message]) -> LineTimes:
    return LineTimes(
        tuple(each.seconds for each in messages if isinstance(each, AgentMessage)),
        tuple(each.seconds for each in messages if isinstance(each, ToolMessage)),
    )


def actions(messages: Sequence[Message]) -> Actions:
    """What the agent of a conversation did."""
    made: list[tuple[str, Any]] = []
    pending: list[ToolInvocation] = []
    characters, text, answer = 0, "", None
    for message in messages:
        if isinstance(message, AgentMessage):
            pending, text = list(message.calls), message.text.strip()
            made += [(call.name, call.input) for call in pending]
            characters += len(message.text) + sum(len(dumps(call.input)) for call in pending)
        elif isinstance(message, ToolMessage):
            call = pending.pop(0) if pending else None
            if message.reward is not None or message.finished:
                answer = text if call is None else call.input
    answer = _digest(text if answer is None else answer)
    return Actions(len(made), characters, answer, _digest(made) or answer)


def _digest(value: Any) -> str | None:
    return hashlib.blake2s(dumps(value), digest_size=6).hexdigest() if value else None
