"""Errors and the outcomes that they become."""

import pytest

from ors.errors import (
    AuthenticationError,
    BadRequest,
    CallOutcomeUnknown,
    NotFound,
    ORSError,
    ServerFailed,
    SessionLost,
    ToolFailed,
    TransportError,
    Unavailable,
)
from ors.rollouts import Failed, ModelError, Outcome, Scored, Truncated
from ors.rollouts.episodes.outcome import Party, Stage, agent_failed, session_failed, worth_retrying

TABLE: list[tuple[ORSError, Stage, Party, bool, bool]] = [
    # error, stage, who, whether a call may have run, whether a new session may help
    (BadRequest("no such task"), "opening", "infrastructure", False, False),
    (AuthenticationError("no key"), "opening", "infrastructure", False, False),
    (NotFound("no such environment"), "opening", "infrastructure", False, False),
    (Unavailable("full"), "opening", "infrastructure", False, True),
    (TransportError("not there"), "opening", "infrastructure", False, True),
    (ServerFailed("setup raised", reason="environment"), "opening", "environment", False, False),
    (ServerFailed("setup raised"), "prompt", "environment", False, False),
    (SessionLost("gone", reason="worker_lost"), "prompt", "infrastructure", False, True),
    (ToolFailed("raised", reason="environment"), "call", "environment", True, False),
    (ToolFailed("late", reason="tool_timeout"), "call", "environment", True, False),
    (ToolFailed("raised"), "call", "environment", True, False),
    (ToolFailed("stopped", reason="shutdown"), "call", "infrastructure", True, True),
    (SessionLost("gone"), "call", "infrastructure", True, True),
    (CallOutcomeUnknown("cut"), "call", "infrastructure", True, True),
    (TransportError("not sent"), "call", "infrastructure", False, True),
]


@pytest.mark.parametrize(("error", "stage", "who", "may_have_run", "again"), TABLE)
def test_an_error_of_the_session_says_who_failed(
    error: ORSError, stage: Stage, who: Party, may_have_run: bool, again: bool
) -> None:
    outcome = session_failed(error, stage)
    assert outcome == Failed(who, stage, type(error).__name__, str(error), may_have_run)
    assert worth_retrying(outcome) == again


def test_a_call_in_a_session_that_was_lost_before_has_not_run() -> None:
    assert not session_failed(SessionLost("gone"), "call", sent=False).may_have_run


def test_only_failures_of_the_infrastructure_are_worth_a_retry() -> None:
    others: list[Outcome] = [Scored(), Truncated("seconds")]
    others += [agent_failed(KeyError("bug")), agent_failed(ModelError("busy"))]
    assert not any(worth_retrying(outcome) for outcome in others)


def test_a_long_message_is_cut() -> None:
    assert len(agent_failed(ValueError("x" * 100_000)).message) == 2000
