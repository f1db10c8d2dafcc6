"""One session as its server sees it."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from ors._json import dumps
from ors.server.observe.events import CallEnded, CallStarted, EpisodeStarted, PromptAsked, ToolsListed
from ors.types import JSONObject, TextBlock, ToolSpec

SESSION_BYTES = 1000
"""Memory of a session without its calls, roughly."""
CALL_BYTES = 500
"""Memory of a call besides its input and its result, roughly."""
POINTER_BYTES = 8


@dataclass(slots=True)
class SharedBytes:
    """Memory of what a session had shown before it was forked, charged once for it and its forks."""

    size: int
    holders: int = 1


@dataclass(slots=True)
class SeenCall:
    """One call of a session."""

    tool: str
    id: str
    input: bytes
    """As JSON: the tool may change the object."""
    started: float
    """Seconds since the session began."""
    ended: float = 0.0
    seconds: float = 0.0
    events: bytes = b""
    """The events of its result, once it has ended."""


class SeenSession:
    """Events of a session so far. Only collects them, since it runs on the event loop."""

    __slots__ = (
        *("_began", "_running", "_shared"),
        *("at", "bytes", "calls", "id", "prompt", "start", "task", "tools"),
    )

    def __init__(self, start: EpisodeStarted) -> None:
        self.start = start
        self.id = uuid.uuid4().hex
        self.at = time.time()
        self._began = time.perf_counter()
        self._running: dict[str, SeenCall] = {}
        self._shared: list[SharedBytes] = []
        self.calls: list[SeenCall] = []
        self.prompt: PromptAsked | None = None
        self.tools: Sequence[ToolSpec] = start.tools
        self.task = None if start.task is None else _json(start.task)
        """As JSON: the environment may change the object."""
        self.bytes = SESSION_BYTES + len(self.task or b"")
        """Memory that it takes alone, roughly."""

    def fork(self, sid: str) -> "SeenSession":
        """A session that goes on from here. Its record begins with what this one has shown so far."""
        if self.bytes:
            self._shared.append(SharedBytes(self.bytes))
            self.bytes = 0
        made = SeenSession(self.start._replace(sid=sid, task=None))
        made.task, made._shared = self.task, list(self._shared)
        for shared in made._shared:
            shared.holders += 1
        made.at, made._began = self.at, self._began
        made.prompt, made.tools = self.prompt, self.tools
        made.calls = [call for call in self.calls if call.id not in self._running]
        made.bytes += POINTER_BYTES * (len(made.calls) + len(made._shared))
        return made

    def release(self) -> int:
        """Gives its memory up; returns how much no other session holds."""
        for shared in self._shared:
            shared.holders -= 1
        return self.bytes + sum(shared.size for shared in self._shared if not shared.holders)

    @property
    def age(self) -> float:
        return time.perf_counter() - self._began

    def see(self, event: PromptAsked | ToolsListed | CallStarted | CallEnded) -> int:
        """Adds an event; returns how much memory it takes."""
        if isinstance(event, CallStarted):
            size = self._call_started(event)
        elif isinstance(event, CallEnded):
            size = self._call_ended(event)
        elif isinstance(event, ToolsListed):
            self.tools, size = event.tools, 0
        else:
            size = self._prompt_asked(event)
        self.bytes += size
        return size

    def _call_started(self, event: CallStarted) -> int:
        call = SeenCall(event.tool, event.task_id, dumps(event.input), self.age)
        self.calls.append(call)
        self._running[event.task_id] = call
        return CALL_BYTES + len(call.input)

    def _call_ended(self, event: CallEnded) -> int:
        call = self._running.pop(event.task_id)
        call.ended, call.seconds, call.events = self.age, event.seconds, event.events
        return len(event.events)

    def _prompt_asked(self, event: PromptAsked) -> int:
        if self.prompt is not None and not self.prompt.error:
            return 0
        self.prompt = event
        return sum(len(each.text if isinstance(each, TextBlock) else each.data) for each in event.blocks)


def _json(task: JSONObject) -> bytes | None:
    """A task as JSON; None if an author's task has what JSON cannot express."""
    try:
        return dumps(task)
    except (TypeError, ValueError, RecursionError):
        return None
