"""Scoring: what each outcome counts as. `play`, `ors eval` and every training adapter use this one table.

- Scored: the reduction of its rewards.
- Unscored, as when the agent gives up, or refused by the model: what it has earned; if that is nothing,
  `unscored_reward`.
- Truncated by turns, tokens, cost or time, or by a reply cut off at its length limit, whose text is never
  graded: the same with `truncated_reward`.
- Failed by the infrastructure: played again (`retries`), then left out. Failed by the environment's code, the
  model provider or the agent's code: left out. `failed_reward` scores them, by who failed.

A malformed call is no outcome: its error goes back to the model, which can try again.

Adapters and `ors eval` count episodes that earned nothing as 0 by default. `play` and `rollouts` record what
the environment gave: their default is None, which leaves an episode out.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Self, TypeGuard, assert_never, get_args

from ors.rollouts.episodes.outcome import Failed, Outcome, Party, Refused, Scored, Truncated, Unscored


@dataclass(frozen=True, slots=True)
class Scoring:
    """What episodes without a reward count as. None leaves them out, which rewards giving up."""

    unscored_reward: float | None = 0.0
    truncated_reward: float | None = 0.0
    failed_reward: Mapping[Party, float] = field(default_factory=dict)
    """By who failed. Others are left out. It replaces what the steps have earned."""

    def __post_init__(self) -> None:
        given = {"unscored_reward": self.unscored_reward, "truncated_reward": self.truncated_reward}
        for who, reward in self.failed_reward.items():
            if who not in get_args(Party):
                raise ValueError(f"failed_reward has {who!r}, not one of {', '.join(get_args(Party))}")
            given[f"failed_reward of {who}"] = reward
        for name, value in given.items():
            if value is not None and not isfinite(value):
                raise ValueError(f"{name} must be a finite number or None, not {value!r}")

    def __str__(self) -> str:
        values = (self.unscored_reward, self.truncated_reward)
        unscored, truncated = ("nothing" if value is None else f"{value:.4g}" for value in values)
        return unscored if unscored == truncated else f"{unscored} if unscored, {truncated} if truncated"

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """The choice in a run's configuration; 0 where there is none."""
        unscored, truncated = (config.get(name) for name in ("unscored_reward", "truncated_reward"))
        return cls(
            float(unscored) if _is_number(unscored) else 0.0,
            float(truncated) if _is_number(truncated) else 0.0,
        )

    def score(self, outcome: Outcome, earned: float | None) -> float | None:
        """What an episode counts as; None if it is left out. `earned` is the reduction of its rewards."""
        match outcome:
            case Failed():
                return self.failed_reward.get(outcome.who)
            case Truncated():
                otherwise = self.truncated_reward
            case Scored() | Unscored() | Refused():
                otherwise = self.unscored_reward
            case _:
                assert_never(outcome)
        return otherwise if earned is None else earned


BY_DEFAULT = Scoring()


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max
