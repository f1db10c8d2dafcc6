"""What the server tells those who watch it: metrics, logs, the inspector.

Each is told in the moment it happens, on the event loop, so it must be quick and must not raise. Events are
tuples with names: one a call is made, and a frozen dataclass would cost four times as much.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable


class SessionOpened(NamedTuple):
    """An episode was asked for, and accepted."""

    sid: str
    environment: str
    key: str
    """The name of the API key that it belongs to, or nothing."""
    trace: str = ""
    """The `traceparent` of the request that created it."""


class SessionReady(NamedTuple):
    """Its setup is over. `reason` says why it failed, and is empty if it did not."""

    sid: str
    environment: str
    seconds: float
    reason: str = ""


class CallFinished(NamedTuple):
    """A call is over.

    `outcome` is "ok", "refused" (the agent was told no) or "failed"; `reason` says why it was not ok.
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
    """A call was accepted. Told only to those who watch its session."""

    sid: str
    tool: str
    task_id: str
    input: dict[str, Any]


class CallEnded(NamedTuple):
    """A call is over, with all of its events. Told only to those who watch its session."""

    sid: str
    tool: str
    task_id: str
    seconds: float
    events: bytes


class CallReplayed(NamedTuple):
    """A client came back for a call that it had started before."""

    sid: str
    environment: str
    task_id: str


class SessionClosed(NamedTuple):
    """An episode has ended and is torn down. `reason` is "deleted", "expired", "life" or "shutdown"."""

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
    """Someone who watches."""

    def observe(self, event: Event) -> None:
        """Something has happened."""


@runtime_checkable
class Closing(Protocol):
    """An observer who has something to do at the end."""

    def close(self) -> None:
        """Nothing more will happen. May take a while: it is called in a thread."""


class Watcher(Protocol):
    """Someone who watches the calls of one session."""

    def show(self, told: CallStarted | CallEnded) -> None:
        """A call of that session has begun or ended."""


class Observers:
    """All who watch a server. With nobody there, telling costs a look at an empty list."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self.all = list(observers)
        self.own: list[Observer] = []
        """The server's metrics and log. They need not be told of calls that went well."""
        self.watched: dict[str, list[Watcher]] = {}
        """Who watches which session, by its id. Look here first: mostly nobody does."""

    def tell(self, event: Event) -> None:
        """Tells everyone."""
        for observer in self.own:
            observer.observe(event)
        for observer in self.all:
            observer.observe(event)

    @property
    def closing(self) -> list[Closing]:
        """Those who want to know when this was all."""
        return [observer for observer in self.all if isinstance(observer, Closing)]

    def show(self, told: CallStarted | CallEnded) -> None:
        """Tells those who watch that session."""
        for watcher in self.watched.get(told.sid, ()):
            watcher.show(told)
