"""Writes the events of a server to the log."""

from collections.abc import Callable
from logging import DEBUG, ERROR, INFO, WARNING, getLogger
from typing import assert_never, get_args

from ors.server.observe.events import (
    CallFinished,
    CallReplayed,
    EpisodeEnded,
    Event,
    LoopHeld,
    Rejected,
    SandboxKilled,
    SandboxOpened,
    SessionClosed,
    SessionOpened,
    SessionReady,
    ThreadLost,
)
from ors.types import JSONObject

log = getLogger("ors.server")

LOGGED = set(get_args(Event)) - {EpisodeEnded}
"""Types of the events that are logged. After an episode, the end of its session is."""
LONGEST_NAME = 100
MAKE_IT_SYNC = "make it a plain def, which runs in a thread, or await the slow part"


class EventLog:
    """Logs one line per event, with its values as fields of the record: `session`, `tool`, …

    `hide` takes the name of an environment and a task, and returns the task without private fields.
    """

    def __init__(self, hide: Callable[[str, JSONObject], JSONObject]) -> None:
        self._hide = hide

    def observe(self, event: Event) -> None:
        level = _level(event)
        if log.isEnabledFor(level):
            fields, line = _fields(event), _line(event)
            if isinstance(event, SessionClosed):
                fields["task"] = self._task(event)
                line = f"episode {event.sid} of {event.environment} ({fields['task']}): {line}"
                del fields["place"]
            log.log(level, "%s", line, extra=fields)

    def _task(self, event: SessionClosed) -> str:
        if event.place is not None:
            return f"{event.place[0]} {event.place[1]}"
        return _short(str(self._hide(event.environment, event.task or {})))


_LEVELS: dict[type[Event], int] = {ThreadLost: ERROR, SessionClosed: INFO, Rejected: INFO}


def _level(event: Event) -> int:
    if isinstance(event, CallFinished) and event.outcome != "ok":
        return INFO
    if (isinstance(event, SessionReady) and event.reason) or (isinstance(event, LoopHeld) and event.first):
        return WARNING
    return _LEVELS.get(type(event), DEBUG)


def _line(event: Event) -> str:
    match event:
        case CallFinished():
            why = f" ({event.reason})" if event.reason else ""
            return f"call of {_short(event.tool)!r} {event.outcome}{why} after {event.seconds:.3f} s"
        case CallReplayed():
            return "call rejoined"
        case SessionOpened():
            return f"session of {event.environment} opened"
        case SessionReady():
            return f"session of {event.environment} {'failed in setup' if event.reason else 'is ready'}"
        case SessionClosed():
            return _ending(event)
        case EpisodeEnded():
            return f"episode {event.sid} of {event.environment}: {event.outcome}"
        case ThreadLost():
            return f"a thread is lost in {_short(event.tool)!r}; {event.lost} are stuck now"
        case LoopHeld():
            held = f"{event.method} blocked the event loop for {event.seconds:.1f} s ({event.where})"
            return f"{held}; {MAKE_IT_SYNC}"
        case SandboxOpened():
            return f"sandbox opened after {event.seconds:.3f} s"
        case SandboxKilled():
            return f"program in a sandbox killed ({event.limit})"
        case Rejected():
            return f"request rejected: {event.reason}"
        case _:
            assert_never(event)


def _ending(event: SessionClosed) -> str:
    calls = "1 call" if event.calls == 1 else f"{event.calls} calls"
    parts = ", ".join(f"{name} {value:g}" for name, value in event.components.items())
    named = f" ({parts})" if parts else ""
    reward = "" if event.reward is None else f"reward {event.reward:g}{named}, "
    return f"{event.outcome}, {reward}{calls}, {event.seconds:.1f} s, {event.reason}"


def _short(tool: str) -> str:
    # Agents may invent names of any length, and log lines are queued.
    return tool if len(tool) <= LONGEST_NAME else tool[:LONGEST_NAME] + "…"


def _fields(event: Event) -> dict[str, object]:
    names = {"sid": "session", "bytes": "result_bytes"}
    fields = {names.get(name, name): getattr(event, name) for name in event._fields}
    if "tool" in fields:
        fields["tool"] = _short(fields["tool"])
    return {
        "event": type(event).__name__,
        **{name: value for name, value in fields.items() if value not in ("", {})},
    }
