"""How a server runs the code of environments: in turn, within a time, and in forks."""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from ors._authoring.tools import Spawn
from ors.environment import Environment, fork_toolsets, own_fork
from ors.server.episodes.error_text import ErrorText
from ors.server.episodes.threads import Threads
from ors.server.observe.counters import SandboxCounts

CLEAN_UP_SECONDS = 1.0
"""How long cancelled code may still clean up."""


@dataclass(frozen=True, slots=True)
class AuthorCode:
    """What the code of all environments of a server runs with."""

    threads: Threads
    error_text: ErrorText
    sandboxes: SandboxCounts


@dataclass(eq=False, slots=True)
class CallOrder:
    """Runs calls one at a time, in the order of arrival. Concurrent ones may overlap with each other."""

    _running: int = 0
    _alone: bool = False
    _queue: deque[tuple[bool, asyncio.Future[None]]] | None = None

    def enter_at_once(self, alone: bool) -> bool:
        """Takes the turn if no other call is first, and returns whether it did."""
        if self._queue or (self._running and (alone or self._alone)):
            return False
        self._running += 1
        self._alone = alone
        return True

    async def enter(self, alone: bool) -> None:
        """Waits for the turn. Each turn needs a `leave`."""
        if self.enter_at_once(alone):
            return
        if self._queue is None:
            self._queue = deque()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (alone, turn)
        self._queue.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the turn came with the cancellation
                self.leave()
            elif entry in self._queue:
                self._queue.remove(entry)
                self._admit()
            raise

    def leave(self) -> None:
        """Ends the turn, and lets the next call run."""
        self._running -= 1
        self._alone = False
        if self._queue:
            self._admit()

    def _admit(self) -> None:
        while self._queue:
            alone, turn = self._queue[0]
            if self._running and (alone or self._alone):
                return
            self._queue.popleft()
            if not turn.done():
                self._running += 1
                self._alone = alone
                turn.set_result(None)


class OutOfTime(Exception):
    """Authors' code did not end in time; the cause says where it was."""


async def within(seconds: float | None, work: Coroutine[Any, Any, Any]) -> None:
    """Runs `work`. When the time is up, or this is cancelled, cancels it, and soon goes on without it."""
    task = asyncio.ensure_future(work)
    late = True
    try:
        await asyncio.wait({task}, timeout=seconds)
        late = not task.done()
    finally:
        if not task.done():
            task.cancel()
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            await asyncio.wait({task}, timeout=CLEAN_UP_SECONDS)
    try:
        task.result()
    except (asyncio.CancelledError, asyncio.InvalidStateError) as error:
        raise OutOfTime if late else asyncio.CancelledError from error
    finally:
        del task  # its error has this frame in its traceback: no cycle


class EnvironmentForks:
    """Forks of one environment, made one after the other. `made` has those that exist so far."""

    def __init__(self, env: Environment, count: int, in_thread: Spawn) -> None:
        self.made: list[Environment] = []
        self._env = env
        self._count = count
        self._in_thread = in_thread
        self._stopped = False

    async def make(self) -> None:
        """Makes all copies, with their toolsets. Raises TypeError if something cannot be copied."""
        fork = own_fork(self._env) or partial(Environment.fork, self._env)
        together = getattr(fork, "together", None)  # a class that overrides such a fork has none
        if together is not None:
            for made in await together(self._env, self._count):
                self._keep(made)
        elif inspect.iscoroutinefunction(fork):
            for _ in range(self._count):
                self._keep(await fork())
        else:
            # All in one thread: changing threads takes longer than a small copy.
            for late in await self._in_thread(self._make, fork):
                self._keep(await late)
        for copy in self.made:
            await fork_toolsets(self._env, copy, self._in_thread)

    def stop(self) -> None:
        self._stopped = True

    def _make(self, fork: Callable[[], Any]) -> list[Any]:
        late = []  # a `def` may return an awaitable
        for _ in range(self._count):
            if self._stopped:
                break
            made = fork()
            late.append(made) if inspect.isawaitable(made) else self._keep(made)
        return late

    def _keep(self, made: Any) -> None:
        cls = type(self._env)
        if made is self._env or not isinstance(made, cls):
            returned = "itself" if made is self._env else type(made).__name__
            raise TypeError(f"{cls.__name__}.fork returned {returned}; expected a new {cls.__name__}")
        self.made.append(made)
