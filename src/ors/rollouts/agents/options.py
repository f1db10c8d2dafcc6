"""Options of model requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ors.rollouts.episodes.messages import Usage


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
    """Most output tokens of one reply. Anthropic requires a number: 16,384 if there is none."""
    stop: tuple[str, ...] = ()
    """Texts at which the model stops. Not for openai-responses."""
    seed: int | None = None
    """Each episode has its own, made from this, task and sample. Not for openai-responses and anthropic."""
    reasoning_effort: str | None = None
    """How much the model thinks: a word of the provider, such as "low", "medium" or "high"."""
    images: bool = True
    """Whether the model takes images. If not, they are named in text."""
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
