"""Agents: what plays an episode."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ors.rollouts.episodes.messages import AgentMessage, Message
from ors.types import JSONObject, ToolSpec


@dataclass(frozen=True, slots=True)
class TaskRef:
    """A task: by split and index, or whole by its spec."""

    environment: str
    split: str | None = None
    index: int | None = None
    spec: JSONObject | None = None
    """With split and index: what is known of the task, usually without its private fields."""

    @property
    def is_whole(self) -> bool:
        """Whether the spec is all there is."""
        return self.spec is not None and (self.split is None or self.index is None)


@dataclass(slots=True)
class Conversation:
    """One episode as its agent sees it."""

    task: TaskRef
    sample: int = 0
    """The number of this episode among those of its task."""
    messages: list[Message] = field(default_factory=list)


class Agent(Protocol):
    """Plays episodes. One agent may play many at the same time: keep no state of an episode in it."""

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        """Replies to the conversation so far, with text, tool calls or both.

        Raises:
            ModelError: the model provider failed. Any other error is the agent's own.
        """


class ModelError(Exception):
    """The model provider failed, after all retries. `status` is its HTTP status, if it answered."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.final = status in (401, 403, 404)
        """Whether every other request would fail in the same way."""


class ContextExceeded(ModelError):
    """The conversation is longer than the model's context: the episode is truncated by its tokens."""
