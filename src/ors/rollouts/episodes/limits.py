"""EpisodeLimits: how long an episode may go on."""

from dataclasses import dataclass, fields

from ors.rollouts.episodes.messages import Usage
from ors.rollouts.episodes.outcome import Truncated


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLimits:
    """The limits of one episode. One that reaches a limit is truncated. None is no limit."""

    turns: int | None = None
    """Most replies of the agent. The calls of the last one still run."""
    tokens: int | None = None
    """Input and output tokens of all model requests together. Checked after each turn."""
    cost: float | None = None
    """Cost of all model requests together, if the agent knows prices. Checked after each turn."""
    seconds: float | None = None
    """Time from the prompt on, without waiting for other model requests. Also cuts what is running."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not value > 0:
                raise ValueError(f"The limit {field.name!r} must be over 0, not {value!r}")

    def blind(self, usage: Usage) -> str | None:
        """Which limit cannot be kept because nobody knows what was used."""
        if self.cost is not None and usage.cost is None:
            return "cost: the model provider reports no usage, or the agent has no prices"
        if self.tokens is not None and usage.unknown:
            return "tokens: the model provider reports no usage"
        return None

    def reached(self, turns: int, usage: Usage) -> Truncated | None:
        """The limit that so many turns and such a usage have reached; the time is not checked here."""
        if self.turns is not None and turns >= self.turns:
            return Truncated("turns", f"{turns} of {self.turns} turns")
        if self.tokens is not None and (used := usage.input_tokens + usage.output_tokens) >= self.tokens:
            return Truncated("tokens", f"{used} of {self.tokens} tokens")
        if self.cost is not None and usage.cost is not None and usage.cost >= self.cost:
            return Truncated("cost", f"{usage.cost:g} of {self.cost:g}")
        return None
