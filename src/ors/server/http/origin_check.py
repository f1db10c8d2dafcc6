"""Which hosts, origins and proxies requests may come from, and the answer to a browser that asks (CORS)."""

from collections.abc import Sequence
from ipaddress import ip_address

from ors.errors import Forbidden
from ors.server.http.answers import Answer, Headers
from ors.server.http.requests import Request

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
MOST_HOSTS = 16
_OF_PROXIES = (
    b"forwarded",
    b"via",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"x-real-ip",
)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on that host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class OriginCheck:
    """Refuses requests that a foreign web page may have sent through a visitor's browser.

    `hosts` are the names by which this server may be addressed, or None for any: this stops pages whose own
    name points to this server (DNS rebinding). `origins` are pages that may call us, besides our own. With
    `direct`, requests that came through a proxy are refused too: its address says nothing of the client's.
    """

    def __init__(
        self, hosts: frozenset[str] | None = None, origins: Sequence[str] = (), *, direct: bool = False
    ) -> None:
        self._hosts = hosts
        self._direct = direct
        # Host headers that passed: the full check costs a microsecond.
        self.good = set() if direct else {b""}
        self._origins = frozenset(origin.rstrip("/").lower().encode() for origin in origins)

    def check(self, request: Request) -> None:
        """Checks a request; for an allowed origin, the answer gets CORS headers."""
        host = request.headers.get(b"host", b"")
        if self._direct and any(name in request.headers for name in _OF_PROXIES):
            raise Forbidden("This server exposes source code and refuses proxied requests", reason="host")
        if host not in self.good:
            self._check_host(host)
        origin = request.headers.get(b"origin")
        if origin is not None:
            self._check_origin(request, origin, host.lower())

    def _check_host(self, host: bytes) -> None:
        if self._hosts is not None and _hostname(host.lower()) not in self._hosts:
            raise Forbidden("Host header not allowed", reason="host")
        if len(self.good) < MOST_HOSTS and not self._direct:
            self.good.add(host)

    def _check_origin(self, request: Request, origin: bytes, host: bytes) -> None:
        if origin.lower() in self._origins or b"*" in self._origins:
            request.more = Headers(
                (b"access-control-allow-origin", origin),
                (b"access-control-expose-headers", b"*"),  # such as ors-reason and retry-after
                (b"vary", b"origin"),
            )
        elif _netloc(origin.lower()) != host:
            raise Forbidden("Origin not allowed", reason="origin")


def is_preflight(request: Request) -> bool:
    """Whether a browser asks if a page of an allowed origin may call us; it sends no key then."""
    return request.method == "OPTIONS" and request.more is not None


def preflight(request: Request) -> Answer:
    return Answer(
        204,
        b"",
        Headers(
            (b"access-control-allow-methods", b"GET, POST, DELETE"),
            (b"access-control-allow-headers", b"*, authorization"),
            (b"access-control-max-age", b"600"),
        ),
    )


def _netloc(origin: bytes) -> bytes:
    return origin.partition(b"://")[2]  # an origin has no path (RFC 6454, 7); "null" has nothing here


def _hostname(host: bytes) -> str:
    name = host.decode("latin-1")
    return name[: name.index("]") + 1] if name.startswith("[") and "]" in name else name.partition(":")[0]
