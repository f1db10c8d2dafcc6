"""Scoring: what each outcome counts as. Means, verdicts and training share this one table.

- Scored: its reward.
- Truncated by turns, tokens, cost or time, or a reply cut off at its length limit: what it has earned; if
  that is nothing, `truncated_reward`.
- Unscored, as when the agent gives up, or refused by the model: the same with `unscored_reward`.
- Failed by the agent's code, the model provider, the environment's code or the infrastructure: nothing. It is
  left out.

A malformed call is no outcome: it goes back to the model, which can try again.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, Self, TypeGuard

from ors.rollouts.episodes.outcome import Failed, Outcome, Truncated


@dataclass(frozen=True, slots=True)
class Scoring:
    """What episodes without a reward count as. None leaves them out, which makes giving up pay."""

    unscored_reward: float | None = 0.0
    truncated_reward: float | None = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not isfinite(value):
                raise ValueError(f"{field.name} must be a finite number or None, not {value!r}")

    def __str__(self) -> str:
        values = (self.unscored_reward, self.truncated_reward)
        unscored, truncated = ("nothing" if value is None else f"{value:.4g}" for value in values)
        return unscored if unscored == truncated else f"{unscored} if unscored, {truncated} if truncated"

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """The choice in a run's configuration; 0 where there is none."""
        chosen = {field.name: config.get(field.name) for field in fields(cls)}
        return cls(**{name: float(value) for name, value in chosen.items() if _is_number(value)})

    def score(self, outcome: Outcome, earned: float | None) -> float | None:
        """What an episode counts as; None if it is left out. `earned` is the reduction of its rewards."""
        if isinstance(outcome, Failed):
            return None
        if earned is not None:
            return earned
        return self.truncated_reward if isinstance(outcome, Truncated) else self.unscored_reward


BY_DEFAULT = Scoring()


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max
