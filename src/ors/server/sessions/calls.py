"""The calls of one session: running, lingering, replayed, each of them once.

A call belongs to its session, not to the connection that started it: it goes on when the client vanishes,
and whoever comes back with its task id or its idempotency key gets its stream from the beginning.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from time import perf_counter
from typing import Any

from ors._protocol import RESULT_GONE, error_event, task_id_event
from ors.server.episodes.result import Result, failed
from ors.server.runtime import Runtime

log = logging.getLogger("ors.server")

GONE = error_event(RESULT_GONE)
SPENT_KEYS = 65_536
"""Idempotency keys that a session remembers at least after their results, and at most twice as many.

Each takes about 75 bytes: 75 KB in a session of 1,000 calls, 10 MB in one of 131,072 and more.
"""


Work = Callable[[str, dict[str, Any]], Coroutine[Any, Any, Result]]
Watch = Callable[["Call", Result], None]
Listener = Callable[[], None]


class Call:
    """One run of a tool. `tail` holds its events after `task_id`, once it is done."""

    __slots__ = (
        "_listeners",
        "_owner",
        "finished_at",
        "id",
        "key",
        "listener",
        "seconds",
        "tail",
        "task",
        "tool",
        "trace",
    )

    def __init__(self, owner: "Calls", tool: str, id: str, key: str | None, trace: str) -> None:
        self.id = id
        self.tool = tool
        self.trace = trace
        self.seconds = -perf_counter()  # not the loop's clock: uvloop's has milliseconds only
        self.key = key
        self.tail: bytes | None = None
        self.task: asyncio.Task[None] | None = None
        self.finished_at = 0.0
        self._owner = owner
        self.listener: Listener | None = None
        """Who waits for the result; others are rare."""
        self._listeners: list[Listener] | None = None

    @property
    def head(self) -> bytes:
        """Its first event, which tells its id."""
        return task_id_event(self.id)

    @property
    def age(self) -> float:
        """Seconds that it has run, or did."""
        return self.seconds + perf_counter() if self.tail is None else self.seconds

    def listen(self, listener: Listener) -> None:
        """`listener` is called once it is done, which it must not be yet."""
        if self.listener is None:
            self.listener = listener
        else:
            self._listeners = [*(self._listeners or ()), listener]

    def unlisten(self, listener: Listener) -> None:
        """`listener` no longer cares."""
        if self.listener == listener:
            self.listener = None
        elif self._listeners:
            self._listeners = [other for other in self._listeners if other != listener]

    def finish(self, result: Result) -> None:
        """Ends the call: its result is booked, then delivered. The first result stands."""
        if self.tail is not None:
            return
        self.tail = result.events
        # Not asked for again: finding the running loop takes a system call in CPython 3.11.
        loop = asyncio.get_running_loop() if self.task is None else self.task.get_loop()
        self.task = None
        self.finished_at = loop.time()
        self.seconds += perf_counter()
        self._owner.finished(self, result)
        listener, others = self.listener, self._listeners
        self.listener = self._listeners = None
        if listener is not None:
            listener()
        for listener in others or ():
            listener()

    def taken(self) -> None:
        """A client has come back for the result."""
        self._owner.taken(self.id)

    def missed(self) -> None:
        """The client that waited for the result did not get it."""
        self._owner.missed(self.id)


class Calls:
    """All calls of one session."""

    __slots__ = ("_by_id", "_by_key", "_runtime", "_spent", "_spent_before", "_watch", "running")

    def __init__(self, runtime: Runtime, watch: Watch) -> None:
        self._runtime = runtime
        self._watch = watch  # is told of each call that is done
        self._by_id: dict[str, Call | int] | None = None  # done calls by the second in which they are kept
        self._by_key: dict[str, str] | None = None  # most clients in the field send none
        self._spent: set[int] | None = None
        self._spent_before: set[int] | None = None  # once there were SPENT_KEYS after them, they go
        self.running = 0

    def __iter__(self) -> Iterator[Call]:
        return (self._call(id, known) for id, known in (self._by_id or {}).items())

    def by_id(self, task_id: str) -> Call | None:
        """The call of that id, running or kept."""
        known = self._by_id.get(task_id) if self._by_id else None
        return None if known is None else self._call(task_id, known)

    def by_key(self, key: str) -> Call | None:
        """The call that was started with that key, running or kept."""
        id = self._by_key.get(key) if self._by_key else None
        return None if id is None else self.by_id(id)

    def _call(self, id: str, known: Call | int) -> Call:
        if isinstance(known, Call):
            return known
        tail, tool, seconds, key = self._runtime.kept.get(id, known) or (GONE, "", 0.0, None)
        call = Call(self, tool, id, key, "")
        call.tail, call.seconds, call.finished_at = tail, seconds, float(known)
        return call

    def spent(self, key: str) -> bool:
        """Whether a call with that key has run, and its result is no longer kept."""
        if self._spent is None:
            return False
        number = hash(key)
        return number in self._spent or (self._spent_before is not None and number in self._spent_before)

    def start(
        self,
        work: Work,
        name: str,
        given: dict[str, Any],
        id: str,
        key: str | None = None,
        trace: str = "",
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> Call:
        """Runs `work(name, given)`, which gives the events after `task_id`, as a new call."""
        call = Call(self, name, id, key, trace)
        if self._by_id is None:
            self._by_id = {}
        self._by_id[id] = call
        if key is not None:
            if self._by_key is None:
                self._by_key = {}
            self._by_key[key] = id
        self.running += 1
        self._runtime.running += 1
        loop = loop or asyncio.get_running_loop()
        run = _run(call, work, name, given)
        # Without a factory by ourselves, and with a name at hand: uvloop takes 0.8 µs longer.
        ours = loop.get_task_factory() is None
        call.task = asyncio.Task(run, loop=loop, name=id) if ours else loop.create_task(run, name=id)
        return call

    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks of the calls that run."""
        return [call.task for call in self._running() if call.task is not None]

    def _running(self) -> list[Call]:
        return [known for known in (self._by_id or {}).values() if isinstance(known, Call)]

    def finished(self, call: Call, result: Result) -> None:
        """A call of ours is done."""
        self.running -= 1
        self._runtime.running -= 1
        if self._by_id is None:
            self._by_id = {}
        self._by_id[call.id] = self._runtime.kept.add(call, self, result.events)
        self._watch(call, result)

    def stop(self, message: str, reason: str) -> list[asyncio.Task[None]]:
        """Ends every running call with an `error` event; gives the tasks that are about to end."""
        tasks = []
        for call in self._running():
            task = call.task
            if task is not None:  # otherwise it is done
                call.finish(failed(message, reason))
                task.cancel()
                tasks.append(task)
        return tasks

    def close(self) -> None:
        """Forgets all results."""
        for id, known in (self._by_id or {}).items():
            if isinstance(known, int):
                self._runtime.kept.remove(id, known)
        self._by_id = self._by_key = self._spent = self._spent_before = None

    # ── What is kept of us ───────────────────────────────────────────────────────────────────────

    def taken(self, id: str) -> None:
        """A client has come back for a result."""
        self._runtime.kept.taken(id)

    def missed(self, id: str) -> None:
        """A client may come back for a result."""
        self._runtime.kept.missed(id)

    def forget(self, id: str, key: str | None) -> None:
        """Nothing is kept of a call any more."""
        if self._by_id is not None:
            self._by_id.pop(id, None)
        if key is not None:
            self.spend(key)

    def spend(self, key: str) -> None:
        """The result of the call with that key is gone. Whoever asks is told so; it never runs again."""
        if self._by_key is not None:
            self._by_key.pop(key, None)
        # By hash: 64 bits tell keys apart, and a long key must not stay.
        if self._spent is None:
            self._spent = set()
        elif len(self._spent) >= SPENT_KEYS:
            self._spent_before, self._spent = self._spent, set()
        self._spent.add(hash(key))


async def _run(call: Call, work: Work, name: str, given: dict[str, Any]) -> None:
    try:
        result = await work(name, given)
    except asyncio.CancelledError:
        result = failed("Tool call cancelled", "cancelled")
    except BaseException:
        # Not even the failure could be told, such as an exception that cannot be put into words.
        log.exception("call of %r failed", name)
        result = failed("Tool execution failed", "environment")
    call.finish(result)
