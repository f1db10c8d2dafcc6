"""What happens on a server, written to the log."""

import logging

from ors.server.observers import (
    CallFinished,
    Event,
    Rejected,
    SessionClosed,
    SessionOpened,
    SessionReady,
    ThreadLost,
)

log = logging.getLogger("ors.server")


class Journal:
    """Writes a line an event, with its values as fields of the record: `session`, `environment`, `tool`, …"""

    def observe(self, event: Event) -> None:
        """Writes the event, if anybody reads its level."""
        level = _level(event)
        if log.isEnabledFor(level):
            log.log(level, "%s", _line(event), extra=_fields(event))


def _level(event: Event) -> int:
    if isinstance(event, CallFinished):
        return logging.DEBUG if event.outcome == "ok" else logging.INFO
    if isinstance(event, ThreadLost):
        return logging.ERROR
    if isinstance(event, SessionReady):
        return logging.WARNING if event.reason else logging.DEBUG
    return logging.INFO if isinstance(event, SessionOpened | SessionClosed | Rejected) else logging.DEBUG


def _line(event: Event) -> str:
    if isinstance(event, CallFinished):
        why = f" ({event.reason})" if event.reason else ""
        return f"call of {event.tool!r} {event.outcome}{why} after {event.seconds:.3f} s"
    if isinstance(event, SessionOpened):
        return f"session of {event.environment} opened"
    if isinstance(event, SessionReady):
        return f"session of {event.environment} {'failed in setup' if event.reason else 'is ready'}"
    if isinstance(event, SessionClosed):
        return f"session of {event.environment} {event.reason} after {event.seconds:.1f} s"
    if isinstance(event, ThreadLost):
        return f"a thread is lost in {event.tool!r}; {event.lost} are stuck now"
    return f"request rejected: {event.reason}" if isinstance(event, Rejected) else "call rejoined"


def _fields(event: Event) -> dict[str, object]:
    names = {"sid": "session", "bytes": "result_bytes"}
    fields = {names.get(name, name): getattr(event, name) for name in event._fields}
    return {"event": type(event).__name__, **{name: value for name, value in fields.items() if value != ""}}
