"""Who may have a session, and who waits for one."""

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import chain

from ors.errors import Unavailable
from ors.limits import Limits
from ors.server.sessions.keys import Keys

RETRY_SECONDS = 1


@dataclass(eq=False, slots=True)
class _Waiting:
    environment: str
    key: str
    turn: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Admission:
    """Counts sessions against the limits; at the limit, creations wait in line, the keys taking turns."""

    def __init__(self, limits: Limits, keys: Keys) -> None:
        self._limits = limits
        self._keys = keys
        self._total = 0
        self._of_environment: Counter[str] = Counter()
        self._of_key: Counter[str] = Counter()
        self._lines: dict[str, deque[_Waiting]] = {}  # by key, the one whose turn it is first
        self.waiting = 0
        self.per_environment: dict[str, int | None] = {}
        """The limits of environments that have their own."""

    def enter(self, environment: str, key: str) -> bool:
        """Takes a place if there is one; says whether it did."""
        # Nobody in line could have it: whenever a place gets free, those who can take it do.
        if not self._free(environment, key):
            return False
        self._take(environment, key)
        return True

    def leave(self, environment: str, key: str) -> None:
        """Gives a place back, to whoever is next."""
        self._total -= 1
        self._of_environment[environment] -= 1
        self._of_key[key] -= 1
        if not self._of_key[key]:
            del self._of_key[key]
        if self.waiting:
            self._admit()

    def full(self) -> Unavailable:
        """What is said to those who find no place."""
        return Unavailable(
            "The server has as many sessions as it may; try again later",
            retry_after=RETRY_SECONDS,
            status=429,
            reason="limit",
        )

    @property
    def saturated(self) -> bool:
        """Whether no session at all could be opened now."""
        return self._limits.sessions is not None and self._total >= self._limits.sessions

    async def wait(self, environment: str, key: str) -> None:
        """Waits for a place in line, and takes it.

        Raises:
            Unavailable: the line is full, it took too long, or everyone was sent away.
        """
        if self.waiting >= self._limits.queue:
            raise self.full()
        waiting = _Waiting(environment, key)
        self._lines.setdefault(key, deque()).append(waiting)
        self.waiting += 1
        try:
            async with asyncio.timeout(self._limits.queue_seconds):
                await waiting.turn
        except BaseException as error:
            if _came(waiting.turn):  # with the end of patience
                self.leave(environment, key)
            else:
                self._give_up(waiting)
            raise self.full() if isinstance(error, TimeoutError) else error from None

    def send_away(self, message: str, reason: str) -> None:
        """Nobody waits any longer."""
        lines, self._lines = self._lines, {}
        self.waiting = 0
        for waiting in chain.from_iterable(lines.values()):
            if not waiting.turn.done():
                waiting.turn.set_exception(Unavailable(message, retry_after=RETRY_SECONDS, reason=reason))

    def _give_up(self, waiting: _Waiting) -> None:
        line = self._lines.get(waiting.key)
        if line and waiting in line:
            line.remove(waiting)
            self.waiting -= 1
            if not line:
                del self._lines[waiting.key]

    def _admit(self) -> None:
        # A place of one environment and one key may be for two: until nobody in line finds any.
        while not self.saturated and (waiting := self._next()) is not None:
            line = self._lines.pop(waiting.key)
            line.remove(waiting)
            self.waiting -= 1
            if line:
                self._lines[waiting.key] = line  # the keys take turns: whoever was served goes to the end
            if not waiting.turn.done():
                self._take(waiting.environment, waiting.key)
                waiting.turn.set_result(None)

    def _next(self) -> _Waiting | None:
        """The first in line who finds a place; one who wants a full environment keeps nobody else back."""
        return next(
            (one for line in self._lines.values() for one in line if self._free(one.environment, one.key)),
            None,
        )

    def _free(self, environment: str, key: str) -> bool:
        limits = self._limits
        of_environment = self.per_environment.get(environment, limits.sessions_per_environment)
        return (
            _under(limits.sessions, self._total)
            and _under(of_environment, self._of_environment[environment])
            and _under(self._keys.sessions(key, limits.sessions_per_key), self._of_key[key])
        )

    def _take(self, environment: str, key: str) -> None:
        self._total += 1
        self._of_environment[environment] += 1
        self._of_key[key] += 1


def _came(turn: asyncio.Future[None]) -> bool:
    return turn.done() and not turn.cancelled() and turn.exception() is None


def _under(limit: int | None, count: int) -> bool:
    return limit is None or count < limit
