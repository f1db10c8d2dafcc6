"""How an episode ended: scored, unscored, truncated, refused or failed."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Limit = Literal["turns", "tokens", "cost", "seconds"]
Party = Literal["agent", "model", "environment", "infrastructure"]
"""Who failed: the agent's own code, the model provider, the environment's code, or anything else between."""
Stage = Literal["opening", "prompt", "model", "call", "closing"]


@dataclass(frozen=True, slots=True)
class Scored:
    """The episode ended, and the environment gave at least one reward."""

    type: Literal["scored"] = "scored"


@dataclass(frozen=True, slots=True)
class Unscored:
    """The episode ended, and the environment gave no reward."""

    type: Literal["unscored"] = "unscored"


@dataclass(frozen=True, slots=True)
class Truncated:
    """The episode reached a limit before it ended."""

    limit: Limit
    detail: str = ""
    type: Literal["truncated"] = "truncated"


@dataclass(frozen=True, slots=True)
class Refused:
    """The model refused to go on, or its provider withheld the reply."""

    type: Literal["refused"] = "refused"


@dataclass(frozen=True, slots=True)
class Failed:
    """The episode could not be played to its end. It has no reward: never train on it as 0."""

    who: Party
    stage: Stage
    error: str
    """The class name of the error."""
    message: str = ""
    may_have_run: bool = False
    """Whether a call whose result is unknown may have run."""
    final: bool = False
    """Whether every other episode would fail in the same way, as with an API key that is refused."""
    type: Literal["failed"] = "failed"


Outcome = Scored | Unscored | Truncated | Refused | Failed


def ended(rewards: Iterable[float | None]) -> Scored | Unscored:
    """The outcome of an episode that ended, from the rewards of its steps."""
    return Unscored() if all(reward is None for reward in rewards) else Scored()


def is_lost(outcome: Outcome) -> bool:
    """Whether the episode failed for infrastructure, so that it may be played again."""
    return isinstance(outcome, Failed) and outcome.who == "infrastructure"
