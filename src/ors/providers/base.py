"""What the module of a provider describes: its API, and the values that go in and out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ors.providers.messages import AgentMessage, ToolInvocation, Usage
from ors.schemas.structure import Schema
from ors.types import Blocks

JSON = dict[str, Any]
Messages = list[JSON]
RawCall = tuple[Any, Any, Any]
"""Name, arguments and id of a call, not checked yet."""


@dataclass(frozen=True)
class CallResult:
    """The result of a call: the tool's output, or the text of a refusal."""

    call: ToolInvocation
    blocks: Blocks
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of a model for a million tokens, in any currency."""

    input: float
    output: float
    cached: float | None = None
    """For input tokens that the provider read from its cache; without it, the price of other input."""

    def cost(self, usage: Usage) -> float:
        cached = self.input if self.cached is None else self.cached
        fresh = usage.input_tokens - usage.cached_tokens
        return (fresh * self.input + usage.cached_tokens * cached + usage.output_tokens * self.output) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Options of model requests. What is None is left to the provider. Times are in seconds."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    """Maximum output tokens of one reply. Anthropic requires a number: 16,384 by default."""
    stop: tuple[str, ...] = ()
    """Texts at which the model stops. Not for openai-responses."""
    seed: int | None = None
    """Each episode derives its own from it. Not for openai-responses and anthropic."""
    reasoning_effort: str | None = None
    """How much the model thinks, in the provider's words, such as "low", "medium" or "high"."""
    images: bool = True
    """Whether the model takes images. If not, a text placeholder replaces each."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request's body. They override ours; None removes one."""
    prices: Prices | None = None
    """Prices, to compute costs. Without them, the cost is what the provider reports, or unknown."""
    retries: int = 8
    """How often a request is repeated after 408, 409, 429, 5xx, or without a complete answer."""
    backoff_seconds: float = 0.5
    """First pause between attempts. Doubles each time, with jitter, unless the provider says how long."""
    longest_pause_seconds: float = 60.0
    """Longest pause. If the provider asks for a longer one, the request fails at once."""
    request_seconds: float = 600.0
    """Time limit for one attempt."""

    def __post_init__(self) -> None:
        # A frozen class sets its own fields only so.
        object.__setattr__(self, "stop", (self.stop,) if isinstance(self.stop, str) else tuple(self.stop))


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request, before its provider's module writes it."""

    model: str
    system: str
    messages: Messages
    """In the provider's format, as are the tools."""
    tools: list[JSON]
    options: ModelOptions
    official: bool
    """Whether it goes to the provider itself, and not to another server that speaks its API."""


@dataclass(frozen=True, slots=True)
class Native:
    """A reply as the provider sent it; it goes back to a provider of the same format unchanged."""

    format: str
    messages: Messages


@dataclass(frozen=True, kw_only=True)
class ModelAPI:
    tool_names: str
    """The regular expression that a tool's name must match."""
    write_tool: Callable[[Schema, Schema], Schema]
    """A tool, from its name with description, and the schema of its input."""
    read_call: Callable[[Any], RawCall | None]
    """The parts of a call; None if it is not a call of this provider."""
    write_prompt: Callable[[Blocks], Messages]
    """The message that shows blocks to the model."""
    write_reply: Callable[[str, Sequence[ToolInvocation]], Messages]
    """A message of the model, from its text and its calls."""
    write_results: Callable[[Sequence[CallResult]], Messages]
    """The messages with the results of all calls of one reply."""

    base_url: str
    url_variable: str
    key_variables: tuple[str, ...]
    key_headers: Callable[[str], dict[str, str]]
    path: Callable[[str], str]
    """The path for a model."""
    write_body: Callable[[ModelRequest], JSON]
    read_answer: Callable[[Any], AgentMessage]
    """Raises ValueError if the answer is not valid, or the provider failed."""
    unsupported: tuple[str, ...] = ()
    """Options that the provider does not have."""
    fixed_headers: Mapping[str, str] = field(default_factory=dict)

    # Regular expressions for the bodies of errors. Those of all providers are tried: servers pass on errors.
    too_long: str
    """The conversation is longer than the model's context."""
    final_error: bytes | None = None
    """A 429 that no retry will help."""
    retry_delay: bytes | None = None
    """Its group is the pause in seconds that the provider asks for."""
