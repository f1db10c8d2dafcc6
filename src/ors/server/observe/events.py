"""Events of a server, and its observers: metrics, logs, the inspector.

Observers are called on the event loop when something happens, so they must be quick and must not raise.
Events are named tuples: every call makes one, and a frozen dataclass would cost four times as much.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable


class SessionOpened(NamedTuple):
    """A session was created."""

    sid: str
    environment: str
    key: str
    """The name of its API key; empty without keys."""
    trace: str = ""
    """The `traceparent` of the request that created it."""


class SessionReady(NamedTuple):
    """A setup has ended. `reason` is empty unless it failed."""

    sid: str
    environment: str
    seconds: float
    reason: str = ""


class CallFinished(NamedTuple):
    """A call has ended.

    `outcome` is "ok", "refused" (by the tool or the server) or "failed"; `reason` says why it is not "ok".
    """

    sid: str
    environment: str
    tool: str
    task_id: str
    outcome: str
    reason: str
    seconds: float
    bytes: int
    reward: float | None
    finished: bool
    trace: str = ""
    """The `traceparent` of the request that made it."""


class CallStarted(NamedTuple):
    """A call has begun. Only for watchers of its session."""

    sid: str
    tool: str
    task_id: str
    input: dict[str, Any]


class CallEnded(NamedTuple):
    """A call has ended, with all its events. Only for watchers of its session."""

    sid: str
    tool: str
    task_id: str
    seconds: float
    events: bytes


class CallReplayed(NamedTuple):
    """A client rejoined a call that it had started before."""

    sid: str
    environment: str
    task_id: str


class SessionClosed(NamedTuple):
    """A session has ended and was torn down. `reason` is "deleted", "expired", "life" or "shutdown"."""

    sid: str
    environment: str
    key: str
    reason: str
    seconds: float
    teardown_seconds: float


class Rejected(NamedTuple):
    """A request was turned away: `reason` is "limit", "shutdown", "key", "host" or "origin"."""

    reason: str


class ThreadLost(NamedTuple):
    """A sync tool exceeded its time and its thread cannot be stopped; `lost` of them are stuck now."""

    sid: str
    environment: str
    tool: str
    lost: int


Event = SessionOpened | SessionReady | CallFinished | CallReplayed | SessionClosed | Rejected | ThreadLost


class Observer(Protocol):
    """Receives the events of a server."""

    def observe(self, event: Event) -> None:
        """Receives an event."""


@runtime_checkable
class Closing(Protocol):
    """An observer that has a `close()`."""

    def close(self) -> None:
        """Called in a thread after the last event; may block."""


class Watcher(Protocol):
    """Watches the calls of one session."""

    def show(self, event: CallStarted | CallEnded) -> None:
        """Receives the begin or the end of a call."""


class Observers:
    """All observers of a server."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self.all = list(observers)
        self.own: list[Observer] = []
        """The server's metrics and log, which do not need successful calls."""
        self.watched: dict[str, list[Watcher]] = {}
        """Watchers by session id. Check this before `show`: most sessions have none."""

    def tell(self, event: Event) -> None:
        """Passes an event to all observers."""
        for observer in self.own:
            observer.observe(event)
        for observer in self.all:
            observer.observe(event)

    @property
    def closing(self) -> list[Closing]:
        """Observers that have a `close()`."""
        return [observer for observer in self.all if isinstance(observer, Closing)]

    def show(self, event: CallStarted | CallEnded) -> None:
        """Passes an event to the watchers of its session."""
        for watcher in self.watched.get(event.sid, ()):
            watcher.show(event)
