"""Who may open sessions: API keys, and the limits on their number."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ors import _protocol
from ors.errors import AuthenticationError, Unavailable
from ors.limits import Limits

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
                raise ValueError("an API key may only be followed by sessions=N or private")
        if not equals:
            name, secret = f"key{number}", name
        if not name or not secret:
            raise ValueError("in an API key NAME=SECRET, neither may be empty")
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
            raise ValueError("two API keys have the same name or the same secret")

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
        key = self.by_name.get(name)
        return key is not None and key.private

    def sessions(self, name: str, default: int | None) -> int | None:
        """The most sessions that key may have at once."""
        key = self.by_name.get(name)
        return default if key is None or key.sessions is None else key.sessions


def digest(secret: bytes) -> bytes:
    return hashlib.blake2b(secret).digest()  # takes half the time of SHA-256 for short texts


# ── Limits ───────────────────────────────────────────────────────────────────────────────────────


class Admission:
    """Counts sessions against the limits."""

    def __init__(self, limits: Limits, keys: Keys) -> None:
        self._limits = limits
        self._keys = keys
        self._total = 0
        self._of_environment: Counter[str] = Counter()
        self._of_key: Counter[str] = Counter()
        self.per_environment: dict[str, int | None] = {}
        """The limits of environments that have their own."""

    def enter(self, environment: str, key: str, count: int = 1) -> None:
        """Takes places. Raises Unavailable if there are not as many."""
        of_all, of_environment, of_key = self._allowed(environment, key)
        if not (
            _fits(of_all, self._total + count)
            and _fits(of_environment, self._of_environment[environment] + count)
            and _fits(of_key, self._of_key[key] + count)
        ):
            raise Unavailable(
                "The server is at its session limit. Try again later.",
                retry_after=RETRY_SECONDS,
                status=429,
                reason="limit",
            )
        self._take(environment, key, count)

    def leave(self, environment: str, key: str, count: int = 1) -> None:
        """Frees places."""
        self._take(environment, key, -count)

    @property
    def saturated(self) -> bool:
        return self._limits.sessions is not None and self._total >= self._limits.sessions

    def most(self, environment: str, key: str) -> float:
        """The most sessions that there may be at once of that environment and key."""
        return min(math.inf if limit is None else limit for limit in self._allowed(environment, key))

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


def _fits(limit: int | None, count: int) -> bool:
    return limit is None or count <= limit
