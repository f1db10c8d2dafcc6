"""The messages of a conversation, independent of any model provider."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from ors.types import Blocks, JSONObject, TextBlock, reward_components

# What records hold. Text is no number, and every number can be summed, drawn and written as JSON.
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]
Seconds = Annotated[float, Field(strict=True, ge=-5e10, le=5e10)]
"""A time that a calendar can show."""

StopReason = Literal["stop", "length", "refusal", "pause", "empty"]


@dataclass(frozen=True)
class ToolInvocation:
    """A tool call of a model: run `session.call_tool(name, input)`, send the result back under `id`."""

    name: str
    input: dict[str, Any]
    id: str | None = None
    error: str | None = None
    """Why the model's arguments could not be read. If set, do not run the call: send the model this text."""
    raw: str | None = None
    """The arguments as the model wrote them, if they could not be read."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more model requests, and their cost if prices are known."""

    input_tokens: Count = 0
    """All input tokens, cached ones included."""
    output_tokens: Count = 0
    """All output tokens, reasoning included."""
    cached_tokens: Count = 0
    reasoning_tokens: Count = 0
    cost: Number | None = None
    """None if it is unknown, of one request or of all."""
    unknown: Count = 0
    """Requests whose usage the provider did not report. The tokens are those of the others."""

    def __add__(self, other: "Usage") -> "Usage":
        # Nothing was used, so its cost is not unknown. Most often it is the very default of a message.
        if other is NO_USAGE or other == NO_USAGE:
            return self
        if self is NO_USAGE or self == NO_USAGE:
            return other
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            None if self.cost is None or other.cost is None else self.cost + other.cost,
            self.unknown + other.unknown,
        )


NO_USAGE = Usage()
"""The usage of a message without a model request."""


@dataclass(frozen=True, slots=True)
class SystemMessage:
    """Instructions for the agent that come before the prompt."""

    text: str
    role: Literal["system"] = "system"


@dataclass(frozen=True, slots=True)
class UserMessage:
    """The prompt of the task, or a later word of the driver to the agent."""

    blocks: Blocks
    role: Literal["user"] = "user"


@dataclass(frozen=True, slots=True)
class AgentMessage:
    """A reply of the agent: text, tool calls, or both."""

    text: str = ""
    calls: tuple[ToolInvocation, ...] = ()
    reasoning: str | None = None
    """The model's reasoning as text, if the provider shows it."""
    stop: StopReason = "stop"
    """Why it stopped: cut off ("length"), to continue when asked again ("pause"), or empty ("empty")."""
    usage: Usage = NO_USAGE
    seconds: Seconds = 0.0
    native: Any = None
    """The reply in the provider's own form, which goes back to it unchanged. Not recorded."""
    role: Literal["assistant"] = "assistant"


@dataclass(slots=True)  # not frozen, since each step makes one: 0.2 against 0.8 µs
class ToolMessage:
    """The result of one tool call."""

    call: str | None
    """The id of the call, as in `ToolInvocation.id`."""
    name: str
    blocks: Blocks
    """The tool's output; for a refused call, the text of the refusal."""
    ok: bool = True
    """Whether the tool accepted the call. A refusal goes to the model, which can try again."""
    reason: str | None = None
    """The code of a refusal, if there is one."""
    reward: Number | None = None
    finished: bool = False
    metadata: JSONObject | None = None
    started: Seconds = 0.0
    """Seconds since the episode began."""
    seconds: Seconds = 0.0
    role: Literal["tool"] = "tool"

    @property
    def components(self) -> dict[str, float]:
        """The named rewards of this step; empty if there are none."""
        return reward_components(self.metadata)


Message = SystemMessage | UserMessage | AgentMessage | ToolMessage


def text_blocks(text: str) -> Blocks:
    return [TextBlock(text=text)]
