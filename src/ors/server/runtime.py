"""What all parts of one server share."""

import asyncio
import math

from ors._protocol import task_ids
from ors.errors import Unavailable
from ors.limits import Limits
from ors.server.episodes.error_text import ErrorText
from ors.server.episodes.threads import Threads
from ors.server.identity import Identity
from ors.server.observe.call_counters import CallCounters
from ors.server.observe.events import Observers
from ors.server.process.forks import Copies
from ors.server.sessions.results import KeptResults

SHUTDOWN = "Server is shutting down"


class Runtime:
    """Limits, wording, threads, kept results, observers, who this is, and how much is going on."""

    def __init__(
        self,
        limits: Limits,
        error_text: ErrorText,
        observers: Observers,
        identity: Identity | None = None,
    ) -> None:
        self.limits = limits
        self.error_text = error_text
        self.observers = observers
        self.identity = identity or Identity()
        self.threads = Threads()
        self.copies = Copies(self.threads)
        self.calls = CallCounters()
        self.kept = KeptResults(limits.kept_seconds, limits.kept_bytes)
        self.loop: asyncio.AbstractEventLoop | None = None
        """Where it all runs; to ask which loop runs takes a system call in CPython 3.11."""
        self.task_ids = task_ids()
        self.running = 0
        """Calls that run or wait for their turn."""
        self.most_running: float = math.inf if limits.calls is None else limits.calls
        self.draining = False
        """Whether it is about to end: nothing new may begin."""
        self.retiring = False
        """Whether it ends when its last session has ended: new ones belong elsewhere."""
        self.leaving = False
        """Whether it has had its last session: what comes for it now begins with its successor."""

    @property
    def taking(self) -> bool:
        """Whether new sessions may come here."""
        return not self.draining and not self.retiring

    def check_open(self) -> None:
        """Lets something new begin.

        Raises:
            Unavailable: the server is about to end.
        """
        if self.draining:
            raise Unavailable(SHUTDOWN, retry_after=1, reason="shutdown")
