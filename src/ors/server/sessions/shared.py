"""What all sessions of a server share, their prompts, and the server's identity, which is in their ids."""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ors import _protocol
from ors._protocol import MAX_SLOT as MAX_SLOT
from ors.errors import Unavailable
from ors.limits import Limits
from ors.server.observe.counters import CallCounters, EpisodeCounters
from ors.server.observe.events import Observers
from ors.server.sessions.kept_results import KeptResults, RecentCalls

SHUTDOWN = "Server is shutting down"


class Shared:
    """Counters, kept results and observers of all sessions. In one object, since every call uses most."""

    def __init__(self, limits: Limits, observers: Observers) -> None:
        self.limits = limits
        self.observers = observers
        self.calls = CallCounters()
        self.episodes = EpisodeCounters()
        self.kept = KeptResults(limits.kept_seconds, limits.kept_bytes)
        self.recent: RecentCalls | None = None
        """Kept for the inspector, where it is offered."""
        self.prompts = Prompts()
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop; finding the running one takes a system call in CPython 3.11."""
        self.task_ids = _protocol.task_ids()
        self.running = 0
        """Calls that run or are queued."""
        self.most_running: float = math.inf if limits.calls is None else limits.calls
        self.draining = False
        """Whether the server shuts down: no new work begins."""

    def now(self) -> float:
        """The time of the event loop."""
        return (self.loop or asyncio.get_running_loop()).time()

    def check_open(self) -> None:
        """Raises Unavailable if the server shuts down."""
        if self.draining:
            raise Unavailable(SHUTDOWN, retry_after=1, reason="shutdown")


def new_incarnation() -> int:
    """Returns a number that no earlier start of this server had: tenths of a second, unique for 13 years."""
    return time.time_ns() // 10**8 & 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Identity:
    """A server's slot and incarnation (one start of it), which are part of its session ids."""

    slot: int = 0
    incarnation: int = field(default_factory=new_incarnation)

    def new_session_id(self) -> str:
        """Returns a session id that leads to this server."""
        return _protocol.new_session_id(self.slot, self.incarnation)

    @property
    def id_prefix(self) -> str:
        """How its session ids begin."""
        return _protocol.id_prefix(self.slot, self.incarnation)

    def made(self, sid: str) -> bool:
        """Whether the id leads to this server."""
        return _protocol.session_id_route(sid) == (self.slot, self.incarnation)

    def lost(self, sid: str) -> bool:
        """Whether the id is from an earlier start of this server, whose sessions are lost."""
        route = _protocol.session_id_route(sid)
        return route is not None and route[0] == self.slot and route[1] != self.incarnation


# ── Prompts ──────────────────────────────────────────────────────────────────────────────────────

KEPT_BYTES = 64 * 2**20
ENTRY_BYTES = 250
"""What an entry takes besides the prompt."""


class _Asking(NamedTuple):
    """A request that asks an environment for its prompt, and the answer for others who want it meanwhile."""

    task: asyncio.Task[Any] | None
    answer: asyncio.Future[bytes]


class Prompts:
    """The prompt of each session, as JSON; beyond the budget, the oldest are dropped.

    Asking an environment again might change the episode. One whose prompt was dropped is asked again.
    """

    def __init__(self, budget: int = KEPT_BYTES) -> None:
        self._budget = budget
        self._by_sid: OrderedDict[str, bytes] = OrderedDict()
        self._same: dict[bytes, tuple[bytes, int]] = {}
        """Each prompt once, and how many sessions have it: forks, and episodes on the same task."""
        self._asking: dict[str, _Asking] = {}
        self._bytes = 0

    def get(self, sid: str) -> bytes | None:
        """The prompt of a session, if it was asked for and is kept."""
        return self._by_sid.get(sid)

    async def asked(self, sid: str, ask: Callable[[], Awaitable[bytes]]) -> bytes:
        """The kept prompt of a session, or what `ask` returns; all who come meanwhile share one run of it."""
        kept = self._by_sid.get(sid)
        if kept is not None:
            return kept
        if sid in self._asking:
            return await asyncio.shield(self._asking[sid].answer)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        asking = self._asking[sid] = _Asking(asyncio.current_task(), answer)
        try:
            prompt = await ask()
            if self._asking.get(sid) is asking:  # otherwise the session has ended meanwhile
                self.keep(sid, prompt)
        except asyncio.CancelledError:
            answer.cancel()
            raise
        except BaseException as error:
            answer.set_exception(error)
            answer.exception()  # perhaps nobody else asks for it
            raise
        else:
            answer.set_result(prompt)
            return prompt
        finally:
            if self._asking.get(sid) is asking:
                del self._asking[sid]
            del answer, asking  # the error has this frame in its traceback: no cycle

    def keep(self, sid: str, prompt: bytes) -> None:
        """Keeps the prompt of a session, instead of an earlier one."""
        if sid in self._by_sid:
            self._drop(sid)
        prompt, holders = self._same.get(prompt) or (prompt, 0)
        self._same[prompt] = prompt, holders + 1
        self._by_sid[sid] = prompt
        self._bytes += ENTRY_BYTES + (0 if holders else len(prompt))
        while self._bytes > self._budget:
            self._drop(next(iter(self._by_sid)))

    def end(self, sid: str) -> list[asyncio.Task[Any]]:
        """Forgets the prompt of a session that ends; returns the cancelled task that asks for it, if any."""
        if sid in self._by_sid:
            self._drop(sid)
        if sid not in self._asking:
            return []
        task = self._asking.pop(sid).task
        assert task is not None
        task.cancel()
        return [task]

    def _drop(self, sid: str) -> None:
        prompt = self._by_sid.pop(sid)
        _, holders = self._same.pop(prompt)
        if holders > 1:
            self._same[prompt] = prompt, holders - 1
        self._bytes -= ENTRY_BYTES + (0 if holders > 1 else len(prompt))
