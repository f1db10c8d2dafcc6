"""Turns errors into the outcome `Failed`: who failed, at which stage, and whether a call may have run."""

from dataclasses import replace

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
from ors.rollouts.agent import ModelError
from ors.rollouts.episodes.outcome import Failed, Outcome, Party, Stage, is_lost

_MAX_TEXT = 2000
# Reasons of a server, not of its environment's code.
_NOT_THE_ENVIRONMENT = frozenset({"deleted", "expired", "life", "shutdown", "worker_lost", "unreachable"})
# Refusals of what was sent: sending it again does not help.
_FINAL = frozenset(
    error.__name__
    for error in (BadRequest, AuthenticationError, Forbidden, NotFound, MethodNotAllowed, TooLarge)
)


def agent_failed(error: BaseException, stage: Stage = "model") -> Failed:
    """The outcome for an error of the agent or of its model provider."""
    failed = _failed("model" if isinstance(error, ModelError) else "agent", stage, error)
    return replace(failed, final=True) if isinstance(error, ModelError) and error.final else failed


def session_failed(error: ORSError, stage: Stage, *, sent: bool = True) -> Failed:
    """The outcome for an error of the session; `sent`: whether it was open when the stage began."""
    unknown = isinstance(error, ToolFailed | CallOutcomeUnknown | SessionLost)
    return _failed(_party(error), stage, error, may_have_run=stage == "call" and sent and unknown)


def worth_retrying(outcome: Outcome) -> bool:
    """Whether a new session may succeed: the infrastructure failed, and did not refuse the request itself."""
    return isinstance(outcome, Failed) and is_lost(outcome) and outcome.error not in _FINAL


def _party(error: ORSError) -> Party:
    if isinstance(error, ToolFailed | ServerFailed) and error.reason not in _NOT_THE_ENVIRONMENT:
        return "environment"
    return "infrastructure"


def _failed(who: Party, stage: Stage, error: BaseException, *, may_have_run: bool = False) -> Failed:
    return Failed(who, stage, type(error).__name__, str(error)[:_MAX_TEXT], may_have_run)
