"""What all sessions of a server share, and the server's identity, which is part of their ids."""

import asyncio
import math
import time
from dataclasses import dataclass, field

from ors import _protocol
from ors._protocol import MAX_SLOT as MAX_SLOT
from ors.errors import Unavailable
from ors.limits import Limits
from ors.server.observe.counters import CallCounters, EpisodeCounters
from ors.server.observe.events import Observers
from ors.server.sessions.kept_results import KeptResults, RecentCalls
from ors.server.sessions.prompts import Prompts

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
