"""Counts episodes as they end, by environment: their outcomes, rewards, and how many were solved."""

from collections.abc import Mapping
from math import isfinite
from typing import NamedTuple

SOLVED = 1.0
"""The least reward of an episode that counts as solved; pass@k takes 0 and 1 in the same way."""
DIGITS = 9
"""Rewards are rounded to this before they are compared: ten times 0.1 is 1."""
_SOLVED = SOLVED - 0.5 * 10**-DIGITS  # as if rounded, in a tenth of the time


class EpisodeTotals(NamedTuple):
    """The episodes of one environment that have ended."""

    ended: int = 0
    scored: int = 0
    solved: int = 0
    reward: float = 0.0
    """Sum of the rewards of scored episodes."""

    def since(self, before: "EpisodeTotals") -> "EpisodeTotals":
        return EpisodeTotals(
            self.ended - before.ended,
            self.scored - before.scored,
            self.solved - before.solved,
            round(self.reward - before.reward, DIGITS),
        )


class _Tally:
    """Numbers of one environment."""

    __slots__ = ("failed", "minus", "plus", "scored", "solved", "unscored")

    def __init__(self) -> None:
        self.scored = self.unscored = self.failed = self.solved = 0
        self.plus = self.minus = 0.0  # counters of Prometheus must not fall


class EpisodeCounters:
    """Counts episodes that have ended."""

    def __init__(self) -> None:
        self._tallies: dict[str, _Tally] = {}

    def add(self, environment: str, outcome: str, reward: float | None) -> None:
        """Counts an episode. Only those that are `scored` have a reward."""
        tally = self._tallies.get(environment)
        if tally is None:
            tally = self._tallies[environment] = _Tally()
        if outcome == "failed":
            tally.failed += 1
        elif reward is None:
            tally.unscored += 1
        else:
            tally.scored += 1
            tally.solved += reward >= _SOLVED
            if not isfinite(reward):  # the sum of large rewards may be infinite, and would stay so
                return
            if reward > 0:
                tally.plus += reward
            else:
                tally.minus -= reward

    def totals(self) -> dict[str, EpisodeTotals]:
        """The episodes since the start, by environment."""
        return {
            name: EpisodeTotals(
                each.scored + each.unscored + each.failed, each.scored, each.solved, each.plus - each.minus
            )
            for name, each in self._tallies.items()
        }

    def outcomes(self) -> Mapping[tuple[str, ...], int]:
        """How many episodes there were, by environment and outcome."""
        return {
            (name, outcome): getattr(each, outcome)
            for name, each in self._tallies.items()
            for outcome in ("scored", "unscored", "failed")
        }

    def solved(self) -> Mapping[tuple[str, ...], int]:
        """How many episodes were solved, by environment."""
        return {(name,): each.solved for name, each in self._tallies.items()}

    def rewards(self) -> Mapping[tuple[str, ...], float]:
        """Sums of positive and of negative rewards, by environment and sign."""
        return {
            (name, sign): getattr(each, sign)
            for name, each in self._tallies.items()
            for sign in ("plus", "minus")
        }
