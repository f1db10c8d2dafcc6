"""The calls of one session, each of which runs once, and its forks.

A call belongs to its session, not to the connection that started it. It continues when the client
disconnects; a client that returns with its task id or idempotency key gets the stream from the beginning.
A fork makes new sessions that continue from the state of this one. It belongs to the requests that wait
for it: when the last of them leaves, it is undone.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

from ors._protocol import RESULT_GONE, UNKNOWN_TASK_ID, error_event
from ors.server.episodes.result import Result, failed
from ors.server.sessions.shared import Shared

log = logging.getLogger("ors.server")

GONE = error_event(RESULT_GONE)
UNKNOWN = error_event(UNKNOWN_TASK_ID)
SPENT_KEYS = 65_536
"""Idempotency keys that a session remembers after their results are gone: at least this many, at most twice.

Each takes about 75 bytes: 75 KB in a session of 1,000 calls, 10 MB in one of 131,072 and more.
"""


MOST_KEYS = 256
"""Idempotency keys of forks that a session remembers."""

Sids = list[str]
Work = Callable[[str, dict[str, Any]], Coroutine[Any, Any, Result]]
Watch = Callable[["Call", Result], None]
Listener = Callable[[], None]


class NoCall(NamedTuple):
    """The answer to a client that rejoins a call which is not there."""

    id: str
    events: bytes


class Call:
    """One tool call. Once it is done, `ending` holds its result as JSON, or the `error` event."""

    __slots__ = (
        "_listeners",
        "_owner",
        "ending",
        "finished_at",
        "id",
        "key",
        "listener",
        "request",
        "seconds",
        "task",
        "tool",
        "trace",
    )

    def __init__(
        self, owner: "Calls", tool: str, id: str, key: str | None, trace: str, request: bytes | None = None
    ) -> None:
        self.id = id
        self.request = request
        self.tool = tool
        self.trace = trace
        self.seconds = -perf_counter()  # not the loop's clock: uvloop's has milliseconds only
        self.key = key
        self.ending: bytes | None = None
        self.task: asyncio.Task[None] | None = None
        self.finished_at = 0.0
        self._owner = owner
        self.listener: Listener | None = None
        """Called with the end of the call; most calls have one listener."""
        self._listeners: list[Listener] | None = None

    @property
    def age(self) -> float:
        """Seconds since the call began, or its duration once it is done."""
        return self.seconds + perf_counter() if self.ending is None else self.seconds

    def listen(self, listener: Listener) -> None:
        """Calls `listener` when the call ends. It must still be running."""
        if self.listener is None:
            self.listener = listener
        else:
            self._listeners = [*(self._listeners or ()), listener]

    def unlisten(self, listener: Listener) -> None:
        if self.listener == listener:
            self.listener = None
        elif self._listeners:
            self._listeners = [other for other in self._listeners if other != listener]

    def finish(self, result: Result) -> None:
        """Ends the call: keeps and counts the result, then delivers it. Only the first result counts."""
        if self.ending is not None:
            return
        self.ending = result.ending
        # By the task: get_running_loop() takes a system call in CPython 3.11.
        loop = asyncio.get_running_loop() if self.task is None else self.task.get_loop()
        self.task = None
        self.finished_at = loop.time()
        self.seconds += perf_counter()
        owner, shared = self._owner, self._owner.shared
        owner.running -= 1
        shared.running -= 1
        if owner.by_task_id is None:
            owner.by_task_id = {}
        owner.by_task_id[self.id] = shared.kept.add(self, owner, result.ending)
        owner.watch(self, result)
        listener, others = self.listener, self._listeners
        if listener is not None:
            self.listener = None
            listener()
        if others is not None:
            self._listeners = None
            for listener in others:
                listener()

    def taken(self) -> None:
        """Marks the result as delivered."""
        self._owner.shared.kept.taken(self.id)

    def missed(self) -> None:
        """Marks the result as not delivered: the client disconnected."""
        self._owner.shared.kept.missed(self.id)


def _nobody(call: Call, result: Result) -> None:
    """Watches the calls of a session that has ended: all of them have finished."""


@dataclass(eq=False, slots=True)
class EarlyCalls:
    """The calls of a session that came before its setup had ended."""

    count: int = 0
    line: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(eq=False, slots=True)
class Calls:
    shared: Shared
    watch: Watch
    """Called with each finished call."""
    by_task_id: dict[str, Call | int] | None = None  # a finished call as the second it is kept under
    running: int = 0
    owner_number: int = 0
    """Its number for `KeptResults`."""
    alone: bool = False
    """Whether the last call began when no other ran, and none has begun since."""
    long: tuple[str, int] | None = None
    """The last result and its size, if it is long and its call ran alone: the next call shows it was read."""
    _by_key: dict[str, str] | None = None  # most clients send no keys
    _spent: set[int] | None = None
    _spent_before: set[int] | None = None  # forgotten after SPENT_KEYS more

    def __iter__(self) -> Iterator[Call]:
        return (self._call(id, known) for id, known in (self.by_task_id or {}).items())

    def known(self, task_id: str | None, key: str | None) -> Call | NoCall | None:
        """The call that a task id or an idempotency key names; None for a key that is new."""
        if task_id is not None:
            return self.by_id(task_id) or NoCall(task_id, UNKNOWN)
        if key is None:
            return None
        if self._spent is not None and self.spent(key):
            return NoCall(next(self.shared.task_ids), GONE)
        id = self._by_key.get(key) if self._by_key else None
        return None if id is None else self.by_id(id)

    def by_id(self, task_id: str) -> Call | None:
        known = self.by_task_id.get(task_id) if self.by_task_id else None
        return None if known is None else self._call(task_id, known)

    def _call(self, id: str, known: Call | int) -> Call:
        if isinstance(known, Call):
            return known
        ending, tool, seconds, key = self.shared.kept.get(id, known) or (GONE, "", 0.0, None)
        call = Call(self, tool, id, key, "")
        call.ending, call.seconds = ending, seconds
        return call

    def spent(self, key: str) -> bool:
        """Whether a call with that key has run and its result is no longer kept."""
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
        request: bytes | None = None,
    ) -> Call:
        """Starts a new call, which runs `work(name, given)`. `request` is the body that asked for it."""
        call = Call(self, name, id, key, trace, request)
        if self.by_task_id is None:
            self.by_task_id = {}
        self.by_task_id[id] = call
        if key is not None:
            if self._by_key is None:
                self._by_key = {}
            self._by_key[key] = id
        self.alone = not self.running
        if self.long is not None:
            (last, size), self.long = self.long, None
            if isinstance(second := self.by_task_id.get(last), int):
                self.shared.kept.read(last, second, size)
        self.running += 1
        self.shared.running += 1
        # Not by create_task, and with a name: with uvloop, that takes 0.8 µs longer.
        call.task = asyncio.Task(
            _run(call, work, name, given), loop=loop or asyncio.get_running_loop(), name=id
        )
        return call

    def tasks(self) -> list[asyncio.Task[None]]:
        return [call.task for call in self._running() if call.task is not None]

    def _running(self) -> list[Call]:
        return [known for known in (self.by_task_id or {}).values() if isinstance(known, Call)]

    def stop(self, message: str, reason: str) -> list[asyncio.Task[None]]:
        """Ends every running call with an `error` event, and returns the cancelled tasks."""
        tasks = []
        for call in self._running():
            task = call.task
            if task is not None:  # otherwise it has finished
                call.finish(failed(message, reason))
                task.cancel()
                tasks.append(task)
        return tasks

    def close(self) -> None:
        for id, known in (self.by_task_id or {}).items():
            if isinstance(known, int):
                self.shared.kept.remove(id, known)
        self.shared.kept.leave(self)
        self.by_task_id = self._by_key = self._spent = self._spent_before = None
        self.watch = _nobody  # with its session, a cycle that only the garbage collector would free

    # ── For KeptResults ───────────────────────────────────────────────────────────────────────

    def forget(self, id: str, key: str | None) -> None:
        """Forgets a call whose result has expired."""
        if self.by_task_id is not None:
            self.by_task_id.pop(id, None)
        if key is not None:
            self.spend(key)

    def spend(self, key: str) -> None:
        """Remembers that the result of a key is gone: the call never runs again."""
        if self._by_key is not None:
            self._by_key.pop(key, None)
        # By hash: 64 bits tell keys apart, and long keys would take memory.
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
        # Even describing the failure has failed, such as with an exception whose __str__ raises.
        log.exception("call of %r failed", name)
        result = failed("Tool execution failed", "environment")
    call.finish(result)


# ── Forks ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False, slots=True)
class Fork:
    """One fork, from its request to the ids of the new sessions."""

    places: int
    """Places for sessions that are taken, and not used yet."""
    _undo: Callable[[Sids], None]
    task: asyncio.Task[Sids] | None = None
    """Makes the sessions."""
    _wanted: int = 0  # requests that wait for the sessions, or have got them
    _stopped: bool = False

    async def sids(self) -> Sids:
        """The ids of the new sessions. When the last request that waits is cancelled, all is undone."""
        assert self.task is not None
        self._wanted += 1
        try:
            return await asyncio.shield(self.task)
        except asyncio.CancelledError:
            self._wanted -= 1
            self.undo_if_unwanted()
            raise

    def stop(self) -> None:
        """Cancels the task, once: a second time would interrupt its cleaning up."""
        if self.task is not None and not self._stopped:
            self._stopped = True
            self.task.cancel()

    def undo_if_unwanted(self) -> None:
        """Stops the fork, or ends its sessions, unless a request waits for them or has got them."""
        assert self.task is not None
        if self._wanted and not self._stopped:
            return
        if not self.task.done():
            self.stop()
        elif not self._failed:
            self._stopped = True
            self._undo(self.task.result())

    @property
    def void(self) -> bool:
        """Whether there are no new sessions, and will be none."""
        return self._stopped or self._failed

    @property
    def _failed(self) -> bool:
        task = self.task
        return task is not None and task.done() and (task.cancelled() or task.exception() is not None)


@dataclass(eq=False, slots=True)
class Forks:
    """The forks of one session: running ones, and those whose idempotency keys are remembered."""

    _by_key: OrderedDict[str, Fork] = field(default_factory=OrderedDict)
    _running: dict[asyncio.Task[Sids], Fork] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._running)

    def by_key(self, key: str | None) -> Fork | None:
        """The fork that was begun with that key, running or done; one that failed is forgotten."""
        known = None if key is None else self._by_key.get(key)
        return None if known is None or known.void else known

    def start(self, fork: Fork, work: Coroutine[Any, Any, Sids], key: str | None) -> asyncio.Task[Sids]:
        task = fork.task = asyncio.create_task(work)
        self._running[task] = fork
        task.add_done_callback(self._ended)
        if key is not None:
            self._by_key[key] = fork
            if len(self._by_key) > MOST_KEYS:
                self._by_key.popitem(last=False)
        return task

    def stop(self) -> list[asyncio.Task[Sids]]:
        """Cancels running forks, and returns their tasks."""
        for fork in self._running.values():
            fork.stop()
        return list(self._running)

    def _ended(self, task: asyncio.Task[Sids]) -> None:
        # Requests that wait count by now: they began in the same turn of the loop as the task.
        self._running.pop(task).undo_if_unwanted()
