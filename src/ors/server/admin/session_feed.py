"""Shows the calls of one session to one reader as they happen."""

import time
from collections.abc import Sequence
from typing import Any

from ors._json import dumps, loads
from ors._protocol import task_id_event
from ors.server.http.streams import Feed, event
from ors.server.observe.events import CallEnded, CallStarted, PromptAsked, Watched
from ors.server.sessions.calls import Call
from ors.server.sessions.recent_calls import RecentCall
from ors.server.sessions.session import ServerSession

MOST_SHOWN_BYTES = 2**20
"""An input or a result over this is not shown."""


class SessionFeed:
    """The feed of one reader who follows one session."""

    def __init__(self, feed: Feed, session: ServerSession) -> None:
        self.feed = feed
        self.session = session
        self._sent = b""

    def begin(self, row: dict[str, Any], prompt: bytes | None, recent: Sequence[RecentCall]) -> None:
        """Sends the session, its prompt, the calls that have ended, and the running ones."""
        self.tell_session(row)
        self.feed.tell(prompt_event(prompt))
        known = {call.id for call in recent}
        others = [call for call in self.session.calls() if call.id not in known]
        older = [_kept(call) for call in others if call.tail is not None]
        running = [_kept(call) for call in others if call.tail is None]
        self.feed.tell(event("before", [*older, *map(recent_call, recent), *running]))

    def tell_session(self, row: dict[str, Any]) -> bool:
        """Sends the session, if it has changed; returns whether it has."""
        update = event("session", row)
        if update == self._sent:
            return False
        self._sent = update
        self.feed.tell(update)
        return True

    def show(self, happened: Watched) -> None:
        """Sends the prompt, and the begin or the end of a call."""
        if isinstance(happened, PromptAsked) and not happened.error:
            fits = len(dumps(happened.blocks)) <= MOST_SHOWN_BYTES
            self.feed.tell(event("prompt", happened.blocks if fits else None))
        if not isinstance(happened, CallStarted | CallEnded):
            return  # the rows of sessions tell the rest
        name = "started" if isinstance(happened, CallStarted) else "ended"
        known = {"task_id": happened.task_id, "tool": happened.tool, "at": round(time.time(), 3)}
        self.feed.tell(event(name, {**known, **_more(happened)}))


def _more(happened: CallStarted | CallEnded) -> dict[str, Any]:
    if isinstance(happened, CallEnded):
        return {"seconds": round(happened.seconds, 6), **_stream(happened.events)}
    fits = len(dumps(happened.input)) <= MOST_SHOWN_BYTES
    return {"input": happened.input if fits else None}


def prompt_event(prompt: bytes | None) -> bytes:
    """The prompt of a session, if it is kept."""
    fits = prompt is not None and len(prompt) <= MOST_SHOWN_BYTES
    return event("prompt", loads(prompt) if prompt is not None and fits else None)


def recent_call(call: RecentCall) -> dict[str, Any]:
    stream = None if call.events is None else (task_id_event(call.id) + call.events).decode()
    return {
        "task_id": call.id,
        "tool": call.tool,
        "seconds": round(call.seconds, 6),
        "input": None if call.request is None else loads(call.request)["input"],
        "stream": stream,
        "bytes": call.size,
    }


def _kept(call: Call) -> dict[str, Any]:
    known = {"task_id": call.id, "tool": call.tool, "seconds": round(call.age, 6)}
    asked = {} if call.request is None else {"input": loads(call.request)["input"]}
    return known | asked | ({} if call.tail is None else _stream(call.head + call.tail))


def _stream(events: bytes) -> dict[str, Any]:
    fits = len(events) <= MOST_SHOWN_BYTES
    return {"stream": events.decode() if fits else None, "bytes": len(events)}
