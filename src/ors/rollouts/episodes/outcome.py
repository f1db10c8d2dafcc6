"""How an episode ended: scored, unscored, truncated, refused or failed, and whose fault it was."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from ors.errors import (
    AuthenticationError,
    BadRequest,
    CallOutcomeUnknown,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    ORSError,
    ServerFailed,
    SessionLost,
    TooLarge,
    ToolFailed,
)
from ors.providers.errors import ModelError

_MAX_TEXT = 2000
# Reasons of a server, not of its environment's code.
_NOT_THE_ENVIRONMENT = frozenset({"deleted", "expired", "life", "shutdown", "worker_lost", "unreachable"})
CANCELLED = "Cancelled"
"""The error of an episode that the caller cancelled."""
# Refusals of what was sent: sending it again does not help.
_FINAL = frozenset((CANCELLED,)) | frozenset(
    error.__name__
    for error in (BadRequest, AuthenticationError, Forbidden, NotFound, MethodNotAllowed, TooLarge)
)

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
    """The model refused to continue, or its provider withheld the reply."""

    type: Literal["refused"] = "refused"


@dataclass(frozen=True, slots=True)
class Failed:
    """The episode could not be played to the end. It has no reward: never train on it as 0."""

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
OUTCOMES: tuple[type[Outcome], ...] = get_args(Outcome)


def name_of(kind: type[Outcome]) -> str:
    """The name of a kind of outcome: its `type`."""
    return str(kind.__dataclass_fields__["type"].default)


def ended(rewards: Iterable[float | None]) -> Scored | Unscored:
    """The outcome of an episode that ended, from the rewards of its steps."""
    return Unscored() if all(reward is None for reward in rewards) else Scored()


def is_lost(outcome: Outcome) -> bool:
    """Whether the episode was lost to the infrastructure, so that it may be played again."""
    return isinstance(outcome, Failed) and outcome.who == "infrastructure"


def agent_failed(error: BaseException, stage: Stage = "model") -> Failed:
    """The outcome for an error of the agent or of its model provider."""
    failed = _failed("model" if isinstance(error, ModelError) else "agent", stage, error)
    return replace(failed, final=True) if isinstance(error, ModelError) and error.final else failed


def session_failed(error: ORSError, stage: Stage, *, sent: bool = True) -> Failed:
    """The outcome for an error of the session; `sent`: whether it was open when the stage began."""
    unknown = isinstance(error, ToolFailed | CallOutcomeUnknown | SessionLost)
    of_code = isinstance(error, ToolFailed | ServerFailed) and error.reason not in _NOT_THE_ENVIRONMENT
    who: Party = "environment" if of_code else "infrastructure"
    return _failed(who, stage, error, may_have_run=stage == "call" and sent and unknown)


def worth_retrying(outcome: Outcome) -> bool:
    """Whether a new session may succeed: the infrastructure failed, and did not refuse the request itself."""
    return isinstance(outcome, Failed) and is_lost(outcome) and outcome.error not in _FINAL


def _failed(who: Party, stage: Stage, error: BaseException, *, may_have_run: bool = False) -> Failed:
    return Failed(who, stage, type(error).__name__, str(error)[:_MAX_TEXT], may_have_run)
