"""Who may ask: API keys, and the hosts and origins that a browser may name."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ors import _protocol
from ors.errors import AuthenticationError, Forbidden
from ors.server.answers import Headers
from ors.server.requests import Request

_API_KEY = _protocol.API_KEY.lower().encode()
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
MOST_HOSTS = 16


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key that clients may use, with a name for logs and limits of its own."""

    name: str
    secret: str = field(repr=False)
    sessions: int | None = None
    """Sessions at once, instead of the server's limit per key."""
    private: bool = False
    """Whether task listings show it the private fields."""

    @classmethod
    def parse(cls, text: str, number: int = 1) -> "ApiKey":
        """A key from `SECRET`, or `NAME=SECRET`, each with `sessions=N` and `private` behind it.

        Raises:
            ValueError: it is none of these; the text does not show the secret.
        """
        words = text.split()
        if not words:
            raise ValueError("an API key is empty")
        name, equals, secret = words[0].partition("=")
        sessions, private = None, False
        for word in words[1:]:
            if word == "private":
                private = True
            elif word.startswith("sessions=") and word[9:].isdigit():
                sessions = int(word[9:])
            else:
                raise ValueError("after an API key comes sessions=N or private, and nothing else")
        if not equals:
            name, secret = f"key{number}", name
        if not name or not secret:
            raise ValueError("an API key is NAME=SECRET, with neither of them empty")
        return cls(name, secret, sessions, private)


class Keys:
    """The API keys of a server. Without any, everyone is let in, under an empty name."""

    def __init__(self, keys: Iterable[ApiKey | str] = ()) -> None:
        parsed = [
            key if isinstance(key, ApiKey) else ApiKey.parse(key, number)
            for number, key in enumerate(keys, 1)
        ]
        self.by_name = {key.name: key for key in parsed}
        # By digest: finding one takes the same time however much of a guess is right.
        self._by_digest = {digest(key.secret.encode()): key.name for key in parsed}
        if len(self.by_name) < len(parsed) or len(self._by_digest) < len(parsed):
            raise ValueError("two API keys have one name, or one secret")

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def name_of(self, request: Request) -> str:
        """The name of the key that a request carries.

        Raises:
            AuthenticationError: it carries none, or an unknown one.
        """
        name = self._by_digest.get(digest(credentials(request)))
        if name is None:
            raise AuthenticationError(
                f"The API key is missing or wrong; send it as {_protocol.API_KEY}", reason="key"
            )
        return name

    def sees_private(self, name: str) -> bool:
        """Whether listings show that key the private fields of tasks."""
        key = self.by_name.get(name)
        return key is not None and key.private

    def sessions(self, name: str, otherwise: int | None) -> int | None:
        """How many sessions that key may have at once."""
        key = self.by_name.get(name)
        return otherwise if key is None or key.sessions is None else key.sessions


def credentials(request: Request) -> bytes:
    """The key that a request carries, or nothing."""
    secret = request.headers.get(_API_KEY)
    if secret is None:
        scheme, _, secret = request.headers.get(b"authorization", b"").partition(b" ")
        secret = secret.strip() if scheme.lower() == b"bearer" else b""
    return secret


def digest(secret: bytes) -> bytes:
    """By what a key is found."""
    return hashlib.blake2b(secret).digest()  # half the time of SHA-256 for something so short


class Door:
    """Turns away what a foreign web page may have sent through a visitor's browser.

    `hosts` are the names by which this server may be addressed, or None for any: a page whose own name was
    pointed at us (DNS rebinding) is found by that. `origins` are pages that may call us, besides our own.
    """

    def __init__(self, hosts: frozenset[str] | None = None, origins: Sequence[str] = ()) -> None:
        self._hosts = hosts
        self.good = {b""}  # Host headers that have passed: looking closer costs a microsecond
        self._origins = frozenset(origin.rstrip("/").lower().encode() for origin in origins)

    def check(self, request: Request) -> None:
        """Lets a request in; an allowed origin is told so with the answer.

        Raises:
            Forbidden: its host or origin is foreign.
        """
        host = request.headers.get(b"host", b"")
        if host not in self.good:
            self._check_host(host)
        origin = request.headers.get(b"origin")
        if origin is not None:
            self._check_origin(request, origin, host.lower())

    def _check_host(self, host: bytes) -> None:
        if self._hosts is not None and _hostname(host.lower()) not in self._hosts:
            raise Forbidden("This server is not addressed by that host name", reason="host")
        if len(self.good) < MOST_HOSTS:
            self.good.add(host)

    def _check_origin(self, request: Request, origin: bytes, host: bytes) -> None:
        if origin.lower() in self._origins or b"*" in self._origins:
            request.more = Headers(
                (b"access-control-allow-origin", origin),
                (b"access-control-expose-headers", b"*"),  # such as who failed, and when to ask again
                (b"vary", b"origin"),
            )
        elif _netloc(origin.lower()) != host:
            raise Forbidden("Pages of this origin may not call this server", reason="origin")


def _netloc(origin: bytes) -> bytes:
    return origin.partition(b"://")[2]  # an origin has no path (RFC 6454, 7); "null" has nothing here


def _hostname(host: bytes) -> str:
    name = host.decode("latin-1")
    return name[: name.index("]") + 1] if name.startswith("[") and "]" in name else name.partition(":")[0]
