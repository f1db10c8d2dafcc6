"""Events of a server, and its observers: metrics, logs, the inspector, recorders.

Observers are called on the event loop when something happens, so they must be quick and must not raise.
Events are named tuples: every call makes one, and a frozen dataclass would cost four times as much.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ors._identity import Identity
from ors.types import Blocks, JSONObject, ToolSpec


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
    components: Mapping[str, float] = {}
    """Its named rewards."""


class CallStarted(NamedTuple):
    """A call has begun. Only for watchers of its session."""

    sid: str
    tool: str
    task_id: str
    input: dict[str, Any]


class CallEnded(NamedTuple):
    """A call has ended. Only for watchers of its session."""

    sid: str
    tool: str
    task_id: str
    seconds: float
    ending: bytes
    """Its result as JSON, or the `error` event."""


class EpisodeStarted(NamedTuple):
    """The episode of a session begins. Only for recorders."""

    sid: str
    environment: str
    split: str | None
    task_index: int | None
    task: JSONObject | None
    """The task as the client gave it; by index, as listings show it, without private fields."""
    tools: Sequence[ToolSpec]
    """The tools that all tasks share."""
    mask: Callable[[str], str] | None
    """Masks the session's secrets in a text; None if it has none."""
    private_task: JSONObject
    """The task with its private fields."""
    code: Callable[[], Identity] = Identity
    """Which code the environment is. It may read files."""


class EpisodeForked(NamedTuple):
    """The episode of a session continues from the state of that of session `first`. Only for recorders."""

    sid: str
    first: str


class PromptAsked(NamedTuple):
    """The prompt was asked for. `error` says why there is none. Only for watchers of its session."""

    sid: str
    blocks: Blocks
    error: str = ""


class ToolsListed(NamedTuple):
    """The tools of the task were asked for. Only for watchers of its session."""

    sid: str
    tools: Sequence[ToolSpec]


class SessionEnded(NamedTuple):
    """A session takes no more calls; its teardown follows. Only for watchers of the session.

    `reason` is that of `SessionClosed`, and `message` is what clients are told.
    """

    sid: str
    reason: str
    message: str
    set_up: bool
    """Whether its setup had ended well."""
    failure: str = ""
    """Why the setup failed, or why no call could run any more."""
    failure_reason: str = ""


class EpisodeEnded(NamedTuple):
    """A tool has finished the episode of a session, or the session has ended before."""

    sid: str
    environment: str
    key: str
    outcome: str
    """"scored", "unscored" or "failed"."""
    reward: float | None
    """The sum of the rewards of its calls; None unless it is scored."""
    calls: int
    created: float
    """When the session was created, by the clock of the event loop."""
    task: JSONObject | None
    """May be large, and has private fields."""
    components: Mapping[str, float] = {}
    """The sums of its named rewards."""


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
    outcome: str = ""
    """This and what follows as in `EpisodeEnded`."""
    reward: float | None = None
    calls: int = 0
    place: tuple[str, int] | None = None
    """The split and the index of its task, if the client gave them."""
    task: JSONObject | None = None
    components: Mapping[str, float] = {}


class Rejected(NamedTuple):
    """A request was turned away: `reason` is "limit", "shutdown", "key", "host" or "origin"."""

    reason: str


class ThreadLost(NamedTuple):
    """A sync tool exceeded its time and its thread cannot be stopped; `lost` of them are stuck now."""

    sid: str
    environment: str
    tool: str
    lost: int


class LoopHeld(NamedTuple):
    """One step of an author's `async def` method kept the event loop from everything else."""

    method: str
    """The class and the method."""
    seconds: float
    where: str
    """The line that ran, as `file.py:12`."""
    first: bool
    """Whether it is the first time for this method."""


class SandboxOpened(NamedTuple):
    """An environment has opened a sandbox."""

    seconds: float


class SandboxKilled(NamedTuple):
    """A limit has ended a program in a sandbox: "time", "output", "memory", "inodes" or "unanswered"."""

    limit: str


Watched = EpisodeStarted | EpisodeForked | PromptAsked | ToolsListed | CallStarted | CallEnded | SessionEnded
"""Events of one session that its watchers are shown."""

Event = (
    SessionOpened
    | SessionReady
    | CallFinished
    | EpisodeEnded
    | CallReplayed
    | SessionClosed
    | Rejected
    | ThreadLost
    | LoopHeld
    | SandboxOpened
    | SandboxKilled
)


class Observer(Protocol):
    def observe(self, event: Event) -> None:
        """Receives an event."""


@runtime_checkable
class Closing(Protocol):
    def close(self) -> None:
        """Called in a thread after the last event; may block."""


class Watcher(Protocol):
    def show(self, event: Watched) -> None:
        """Receives an event of the session."""


@runtime_checkable
class Recorder(Watcher, Protocol):
    """Watches every session from its start."""

    def counts(self) -> tuple[int, int]:
        """The number of records that were written, and of those that were dropped."""


class Observers:
    def __init__(self, observers: Sequence[Observer | Recorder] = ()) -> None:
        self.recorders = [one for one in observers if isinstance(one, Recorder)]
        self.all = [one for one in observers if not isinstance(one, Recorder)]
        self._own: defaultdict[type[Event], list[Callable[[Any], None]]] = defaultdict(list)
        self.watched: dict[str, list[Watcher]] = {}
        """Watchers by session id. Check this before `show`: most sessions have none."""

    def subscribe(self, observe: Callable[[Any], None], events: Iterable[type[Event]]) -> None:
        """Adds one of the server's own observers, for events of these types only.

        It does not get successful calls, unless `all` has observers.
        """
        for event in events:
            self._own[event].append(observe)

    def tell(self, event: Event) -> None:
        for observe in self._own.get(type(event), ()):
            observe(event)
        for observer in self.all:
            observer.observe(event)

    @property
    def closing(self) -> list[Closing]:
        return [observer for observer in (*self.all, *self.recorders) if isinstance(observer, Closing)]

    def record(self, event: EpisodeStarted | EpisodeForked) -> None:
        for recorder in self.recorders:
            self.watch(event.sid, recorder)
        self.show(event)

    def watch(self, sid: str, watcher: Watcher) -> None:
        self.watched.setdefault(sid, []).append(watcher)

    def unwatch(self, sid: str, watcher: Watcher) -> None:
        self.watched[sid].remove(watcher)
        if not self.watched[sid]:
            del self.watched[sid]

    def show(self, event: Watched) -> None:
        for watcher in self.watched.get(event.sid, ()):
            watcher.show(event)

    def end(self, event: SessionEnded) -> None:
        """Passes the end of a session to its watchers; the recorders watch it no longer."""
        self.show(event)
        for recorder in self.recorders:
            self.unwatch(event.sid, recorder)
