"""Who may open sessions: API keys, and the limits on their number, at which creations queue."""

import asyncio
import hashlib
import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from ors import _protocol
from ors.errors import AuthenticationError, Unavailable
from ors.limits import QUEUE_SECONDS, Limits

RETRY_SECONDS = 1


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key, with a name for logs and its own limits."""

    name: str
    secret: str = field(repr=False)
    sessions: int | None = None
    """Most sessions at once; overrides the server's limit per key."""
    private: bool = False
    """Whether clients with this key see the private fields of tasks."""

    @classmethod
    def parse(cls, text: str, number: int = 1) -> "ApiKey":
        """Parses `SECRET` or `NAME=SECRET`, optionally followed by `sessions=N` and `private`.

        Raises:
            ValueError: the text has another form; the message does not show the secret.
        """
        words = text.split()
        if not words:
            raise ValueError("an API key is empty")
        name, equals, secret = words[0].partition("=")
        sessions, private = None, False
        for word in words[1:]:
            if word == "private":
                private = True
            elif word.startswith("sessions=") and word[9:].isdecimal():
                sessions = int(word[9:])
            else:
                raise ValueError("after an API key comes sessions=N or private, and nothing else")
        if not equals:
            name, secret = f"key{number}", name
        if not name or not secret:
            raise ValueError("an API key is NAME=SECRET, with neither of them empty")
        return cls(name, secret, sessions, private)


class Keys:
    """The API keys of a server. Without any, every client is accepted, under an empty name."""

    def __init__(self, keys: Iterable[ApiKey | str] = ()) -> None:
        parsed = [
            key if isinstance(key, ApiKey) else ApiKey.parse(key, number)
            for number, key in enumerate(keys, 1)
        ]
        self.by_name = {key.name: key for key in parsed}
        # By digest: the time of a lookup tells nothing about how much of a guess is right.
        self._by_digest = {digest(key.secret.encode()): key.name for key in parsed}
        if len(self.by_name) < len(parsed) or len(self._by_digest) < len(parsed):
            raise ValueError("two API keys have one name, or one secret")

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def name_of(self, secret: bytes) -> str:
        """The name of the key with that secret. Raises AuthenticationError if there is none."""
        name = self._by_digest.get(digest(secret))
        if name is None:
            raise AuthenticationError(
                f"The API key is missing or wrong; send it as {_protocol.API_KEY}", reason="key"
            )
        return name

    def sees_private(self, name: str) -> bool:
        """Whether that key sees the private fields of tasks."""
        key = self.by_name.get(name)
        return key is not None and key.private

    def sessions(self, name: str, default: int | None) -> int | None:
        """The most sessions that key may have at once."""
        key = self.by_name.get(name)
        return default if key is None or key.sessions is None else key.sessions


def digest(secret: bytes) -> bytes:
    """The digest under which a key is stored."""
    return hashlib.blake2b(secret).digest()  # takes half the time of SHA-256 for short texts


# ── Limits ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False, slots=True)
class _Waiting:
    environment: str
    key: str
    count: int
    turn: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Admission:
    """Counts sessions against the limits. At the limit, creations queue, and API keys take turns."""

    def __init__(self, limits: Limits, keys: Keys) -> None:
        self._limits = limits
        self._keys = keys
        self._total = 0
        self._of_environment: Counter[str] = Counter()
        self._of_key: Counter[str] = Counter()
        self._queues: dict[str, deque[_Waiting]] = {}  # by key; the first key is next
        self.waiting = 0
        self.per_environment: dict[str, int | None] = {}
        """The limits of environments that have their own."""

    def enter(self, environment: str, key: str, count: int = 1) -> bool:
        """Takes places if there are as many, and returns whether it did."""
        # The queue need not be asked: a place that gets free is given to it at once.
        if not self._free(environment, key, count):
            return False
        self._take(environment, key, count)
        return True

    def leave(self, environment: str, key: str, count: int = 1) -> None:
        """Frees places, and admits the next in the queue."""
        self._take(environment, key, -count)
        if self.waiting:
            self._admit()

    def full(self) -> Unavailable:
        """The error for a creation that finds no place."""
        return Unavailable(
            "The server is at its session limit. Try again later.",
            retry_after=RETRY_SECONDS,
            status=429,
            reason="limit",
        )

    @property
    def saturated(self) -> bool:
        """Whether the server has reached its limit of sessions."""
        return self._limits.sessions is not None and self._total >= self._limits.sessions

    def most(self, environment: str, key: str) -> float:
        """The most sessions that there may be at once of that environment and key."""
        return min(math.inf if limit is None else limit for limit in self._allowed(environment, key))

    async def wait(self, environment: str, key: str, count: int = 1) -> None:
        """Waits in the queue for places, and takes them all at once.

        Raises:
            Unavailable: the queue is full, the wait took too long, or the server shuts down.
        """
        if self.waiting >= self._limits.queue:
            raise self.full()
        waiting = _Waiting(environment, key, count)
        self._queues.setdefault(key, deque()).append(waiting)
        self.waiting += 1
        try:
            async with asyncio.timeout(QUEUE_SECONDS):
                await waiting.turn
        except BaseException as error:
            if _granted(waiting.turn):  # in the moment in which the wait ended
                self.leave(environment, key, count)
            else:
                self._give_up(waiting)
            raise self.full() if isinstance(error, TimeoutError) else error from None

    def refuse_waiting(self, message: str, reason: str) -> None:
        queues, self._queues = self._queues, {}
        self.waiting = 0
        for waiting in chain.from_iterable(queues.values()):
            if not waiting.turn.done():
                waiting.turn.set_exception(Unavailable(message, retry_after=RETRY_SECONDS, reason=reason))

    def _give_up(self, waiting: _Waiting) -> None:
        queue = self._queues.get(waiting.key)
        if queue and waiting in queue:
            queue.remove(waiting)
            self.waiting -= 1
            if not queue:
                del self._queues[waiting.key]

    def _admit(self) -> None:
        # One free place may admit several, since limits also hold per environment and key.
        while not self.saturated and (waiting := self._next()) is not None:
            queue = self._queues.pop(waiting.key)
            queue.remove(waiting)
            self.waiting -= 1
            if queue:
                self._queues[waiting.key] = queue  # keys take turns: this one goes to the end
            if not waiting.turn.done():
                self._take(waiting.environment, waiting.key, waiting.count)
                waiting.turn.set_result(None)

    def _next(self) -> _Waiting | None:
        """The first creation that finds a place; one for a full environment does not block the others."""
        return next(
            (
                one
                for queue in self._queues.values()
                for one in queue
                if self._free(one.environment, one.key, one.count)
            ),
            None,
        )

    def _free(self, environment: str, key: str, count: int) -> bool:
        of_all, of_environment, of_key = self._allowed(environment, key)
        return (
            _fits(of_all, self._total + count)
            and _fits(of_environment, self._of_environment[environment] + count)
            and _fits(of_key, self._of_key[key] + count)
        )

    def _allowed(self, environment: str, key: str) -> tuple[int | None, int | None, int | None]:
        limits = self._limits
        return (
            limits.sessions,
            self.per_environment.get(environment, limits.sessions_per_environment),
            self._keys.sessions(key, limits.sessions_per_key),
        )

    def _take(self, environment: str, key: str, count: int) -> None:
        self._total += count
        self._of_environment[environment] += count
        self._of_key[key] += count


def _granted(turn: asyncio.Future[None]) -> bool:
    return turn.done() and not turn.cancelled() and turn.exception() is None


def _fits(limit: int | None, count: int) -> bool:
    return limit is None or count <= limit
