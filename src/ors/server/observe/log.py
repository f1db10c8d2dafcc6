"""Writes the events of a server to the log."""

import logging
from collections.abc import Callable
from typing import assert_never, get_args

from ors.server.observe import events
from ors.types import JSONObject

log = logging.getLogger("ors.server")

LOGGED = set(get_args(events.Event)) - {events.EpisodeEnded}
"""Types of the events that are logged. After an episode, the end of its session is."""
LONGEST_NAME = 100
MAKE_IT_SYNC = "make it a plain def, which runs in a thread, or await the slow part"


class EventLog:
    """Logs one line per event, with its values as fields of the record: `session`, `tool`, …

    `hide` takes the name of an environment and a task, and returns the task without private fields.
    """

    def __init__(self, hide: Callable[[str, JSONObject], JSONObject]) -> None:
        self._hide = hide

    def observe(self, event: events.Event) -> None:
        level = _level(event)
        if log.isEnabledFor(level):
            fields = _fields(event)
            if isinstance(event, events.SessionClosed):
                fields["task"] = self._task(event)
                del fields["place"]
            log.log(level, "%s", _line(event, str(fields.get("task"))), extra=fields)

    def _task(self, event: events.SessionClosed) -> str:
        if event.place is not None:
            return f"{event.place[0]} {event.place[1]}"
        return _short(str(self._hide(event.environment, event.task or {})))


def _level(event: events.Event) -> int:
    match event:
        case events.ThreadLost():
            return logging.ERROR
        case events.LoopHeld(first=True):
            return logging.WARNING
        case events.SessionReady() if event.reason:
            return logging.WARNING
        case events.CallFinished() if event.outcome != "ok":
            return logging.INFO
        case events.SessionClosed() | events.Rejected():
            return logging.INFO
        case _:
            return logging.DEBUG


def _line(event: events.Event, task: str) -> str:
    match event:
        case events.CallFinished():
            why = f" ({event.reason})" if event.reason else ""
            return f"call of {_short(event.tool)!r} {event.outcome}{why} after {event.seconds:.3f} s"
        case events.CallReplayed():
            return "call rejoined"
        case events.SessionOpened():
            return f"session of {event.environment} opened"
        case events.SessionReady():
            return f"session of {event.environment} {'failed in setup' if event.reason else 'is ready'}"
        case events.SessionClosed():
            calls = "1 call" if event.calls == 1 else f"{event.calls} calls"
            parts = ", ".join(f"{name} {value:g}" for name, value in event.components.items())
            named = f" ({parts})" if parts else ""
            reward = "" if event.reward is None else f"reward {event.reward:g}{named}, "
            how = f"{event.outcome}, {reward}{calls}, {event.seconds:.1f} s, {event.reason}"
            return f"episode {event.sid} of {event.environment} ({task}): {how}"
        case events.EpisodeEnded():
            return f"episode {event.sid} of {event.environment}: {event.outcome}"
        case events.ThreadLost():
            return f"a thread is lost in {_short(event.tool)!r}; {event.lost} are stuck now"
        case events.LoopHeld():
            held = f"{event.method} blocked the event loop for {event.seconds:.1f} s ({event.where})"
            return f"{held}; {MAKE_IT_SYNC}"
        case events.SandboxOpened():
            return f"sandbox opened after {event.seconds:.3f} s"
        case events.SandboxKilled():
            return f"program in a sandbox killed ({event.limit})"
        case events.Rejected():
            return f"request rejected: {event.reason}"
        case _:
            assert_never(event)


def _short(tool: str) -> str:
    # Agents may invent names of any length, and log lines are queued.
    return tool if len(tool) <= LONGEST_NAME else tool[:LONGEST_NAME] + "…"


def _fields(event: events.Event) -> dict[str, object]:
    names = {"sid": "session", "bytes": "result_bytes"}
    fields = {names.get(name, name): getattr(event, name) for name in event._fields}
    if "tool" in fields:
        fields["tool"] = _short(fields["tool"])
    return {
        "event": type(event).__name__,
        **{name: value for name, value in fields.items() if value not in ("", {})},
    }
