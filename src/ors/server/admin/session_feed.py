"""The calls of one session, shown to one reader as they happen."""

import time
from typing import Any

from ors._json import dumps
from ors.server.http.streams import Feed, event
from ors.server.observe.events import CallEnded, CallStarted
from ors.server.sessions.calls import Call
from ors.server.sessions.session import ServerSession

MOST_SHOWN_BYTES = 2**20
"""An input or a result over this is not shown."""


class SessionFeed:
    """A reader who follows one session."""

    def __init__(self, feed: Feed, session: ServerSession) -> None:
        self.feed = feed
        self.session = session
        self._sent = b""

    def begin(self, row: dict[str, Any]) -> None:
        """Tells how the session stands: the calls that run, and those whose results are still kept."""
        self.tell_session(row)
        self.feed.tell(event("before", [_before(call) for call in self.session.calls()]))

    def tell_session(self, row: dict[str, Any]) -> bool:
        """Tells how the session stands, if that has changed."""
        told = event("session", row)
        if told == self._sent:
            return False
        self._sent = told
        self.feed.tell(told)
        return True

    def show(self, told: CallStarted | CallEnded) -> None:
        """A call has begun or ended."""
        name = "started" if isinstance(told, CallStarted) else "ended"
        known = {"task_id": told.task_id, "tool": told.tool, "at": round(time.time(), 3)}
        self.feed.tell(event(name, {**known, **_more(told)}))


def _more(told: CallStarted | CallEnded) -> dict[str, Any]:
    if isinstance(told, CallEnded):
        return {"seconds": round(told.seconds, 6), **_stream(told.events)}
    fits = len(dumps(told.input)) <= MOST_SHOWN_BYTES
    return {"input": told.input if fits else None}


def _before(call: Call) -> dict[str, Any]:
    known = {"task_id": call.id, "tool": call.tool, "seconds": round(call.age, 6)}
    return known if call.tail is None else {**known, **_stream(call.head + call.tail)}


def _stream(events: bytes) -> dict[str, Any]:
    fits = len(events) <= MOST_SHOWN_BYTES
    return {"stream": events.decode() if fits else None, "bytes": len(events)}
