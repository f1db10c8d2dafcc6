"""The states of a session, and the changes between them.

      start           setup ends          fails            delete, expiry, shutdown
(new) ─────▶ CREATING ──────────▶ READY ────────▶ FAILED   any of them ─────▶ DELETED
                 └────── setup raises ──────────────▲
"""

import enum


class State(enum.Enum):
    """The state of a session."""

    CREATING = "creating"
    READY = "ready"
    FAILED = "failed"
    DELETED = "deleted"

    __hash__ = object.__hash__  # that of Enum is written in Python


CREATING, READY, FAILED, DELETED = State
"""Used by every session: `State.READY` takes CPython 3.11 0.14 µs."""

TRANSITIONS: dict[State, frozenset[State]] = {
    CREATING: frozenset({READY, FAILED, DELETED}),
    READY: frozenset({FAILED, DELETED}),
    FAILED: frozenset({DELETED}),
    DELETED: frozenset(),
}
