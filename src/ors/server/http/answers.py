"""Answers: complete responses, and the headers that they have."""

from typing import NamedTuple

from ors import _protocol
from ors._json import dumps
from ors._version import __version__
from ors.errors import AuthenticationError, MethodNotAllowed, ORSError, Unavailable


class Headers:
    """A set of response headers, as bytes for our own connections and as pairs for ASGI."""

    __slots__ = ("wire",)

    def __init__(self, *pairs: tuple[bytes, bytes]) -> None:
        self.wire = b"".join(b"%b: %b\r\n" % pair for pair in pairs)

    @classmethod
    def read(cls, wire: bytes) -> "Headers":
        made = cls.__new__(cls)
        made.wire = wire
        return made

    @property
    def pairs(self) -> list[tuple[bytes, bytes]]:
        parts = [line.partition(b": ") for line in self.wire.split(b"\r\n")[:-1]]
        return [(name, value) for name, _, value in parts]


_VERSION = (_protocol.SERVER_VERSION.lower().encode(), __version__.encode())
_REASON = _protocol.REASON.lower().encode()
_JSON_TYPE = (b"content-type", b"application/json")

EMPTY = Headers(_VERSION)
JSON = Headers(_VERSION, _JSON_TYPE)
TEXT = Headers(_VERSION, (b"content-type", b"text/plain; version=0.0.4; charset=utf-8"))
STREAM = Headers(
    _VERSION,
    (b"content-type", _protocol.EVENT_STREAM.encode() + b"; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class Answer(NamedTuple):
    """A complete response."""

    status: int
    body: bytes
    headers: Headers = JSON


def answer(value: object) -> Answer:
    return Answer(200, dumps(value))


def refusal(error: ORSError) -> Answer:
    if isinstance(error, Redirect):
        return Answer(308 if error.for_good else 307, b"", Headers(_VERSION, (b"location", error.location)))
    more: list[tuple[bytes, bytes]] = []
    if error.reason:
        more.append((_REASON, error.reason.encode()))
    if isinstance(error, AuthenticationError):
        more.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, MethodNotAllowed):
        more.append((b"allow", error.allow.encode()))
    if isinstance(error, Unavailable) and error.retry_after is not None:
        more.append((b"retry-after", b"%d" % error.retry_after))
    headers = Headers(_VERSION, _JSON_TYPE, *more) if more else JSON
    return Answer(error.status, dumps({"detail": str(error)}), headers)


def failure() -> Answer:
    """Makes the 500 for a bug of ours; the log has the details."""
    return Answer(500, dumps({"detail": "Internal Server Error"}))


class Redirect(ORSError):
    """The path is served at another location."""

    status = 308

    def __init__(self, location: bytes, *, for_good: bool = True) -> None:
        super().__init__("redirect")
        self.location = location
        self.for_good = for_good
        """Whether clients may cache it: browsers do, even for the next server on this port."""
