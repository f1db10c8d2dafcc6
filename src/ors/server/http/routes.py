"""The route table: from a method and a path to a handler."""

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

from ors import _protocol
from ors._protocol import Endpoint
from ors.errors import MethodNotAllowed, NotFound, ORSError
from ors.server.episodes.environments import ServedEnvironment
from ors.server.http.answers import Answer, Headers, Redirect
from ors.server.http.requests import Request
from ors.server.http.streams import Outcome

Coming = Coroutine[Any, Any, Answer]
Handler = Callable[[Request, ServedEnvironment], Outcome | Coming]

LONGEST_LOCATION = 16 * 1024
"""Longest redirect, quoted; longer ones would not fit into a header."""

_OWN = f"/{_protocol.OWN_PREFIX}/"
_ROOT_NAMES = {e.name for e in _protocol.ENDPOINTS if not e.per_environment} | {_protocol.OWN_PREFIX}
_BARE_DISCOVERY = {e.name for e in _protocol.ENDPOINTS if e.per_environment and not e.needs_session}


class Routes:
    """Finds handlers, and the errors for all other paths."""

    def __init__(
        self,
        handlers: dict[Endpoint, Handler],
        bare: Callable[[Handler], Handler],
        environments: dict[str, ServedEnvironment],
        page: Callable[[str, str], Handler],
        is_visit: Callable[[Request], bool],
    ) -> None:
        self._environments = environments
        self._first = next(iter(environments.values()))
        self._page = page
        self._is_visit = is_visit
        self.exact = _routes(handlers, bare, environments)
        """By method and canonical path."""

    def find(self, request: Request) -> tuple[Handler, ServedEnvironment]:
        """Finds the handler of a path that is not canonical.

        Raises:
            NotFound, MethodNotAllowed, Redirect: there is none.
        """
        first, _, rest = request.path.strip("/").partition("/")
        environment = first.lower() if first.lower() in self._environments else first
        path = f"/{environment}/{rest}".rstrip("/")
        method = "GET" if request.method == "HEAD" else request.method
        route = self.exact.get((method, path))
        if route is not None:
            return route
        if is_preflight(request):
            return (lambda request, environment: preflight()), self._first
        if f"{path}/".startswith(_OWN) or self._is_visit(request):
            return self._page(method, path), self._first
        allowed = {verb for verb, where in self.exact if where == path}
        if allowed:
            allow = ", ".join(sorted(allowed | {"HEAD"} if "GET" in allowed else allowed))
            raise MethodNotAllowed(f"{request.method} is not allowed here; use {allow}", allow=allow)
        raise self._not_found(request, first.lower())

    def _not_found(self, request: Request, first: str) -> ORSError:
        if first in self._environments or first in _ROOT_NAMES:
            return self._nothing()
        if len(self._environments) == 1 or request.path.strip("/") in _BARE_DISCOVERY:
            below = _below(self._first.name, request)
            return Redirect(below) if len(below) <= LONGEST_LOCATION else self._nothing()
        return (
            unknown_environment(self._environments)
            if first
            else NotFound("There is nothing here; try /list_environments")
        )

    def _nothing(self) -> NotFound:
        return NotFound(
            f"There is nothing at this path; the environments are: {', '.join(self._environments)}"
        )


def unknown_environment(environments: dict[str, ServedEnvironment]) -> NotFound:
    return NotFound(f"Unknown environment; the environments are: {', '.join(environments)}")


def is_preflight(request: Request) -> bool:
    """Whether a browser asks if a page of an allowed origin may call us; it sends no key then."""
    return request.method == "OPTIONS" and request.more is not None


def preflight() -> Answer:
    return Answer(
        204,
        b"",
        Headers(
            (b"access-control-allow-methods", b"GET, POST, DELETE"),
            (b"access-control-allow-headers", b"*, authorization"),
            (b"access-control-max-age", b"600"),
        ),
    )


def _below(environment: str, request: Request) -> bytes:
    path = quote(f"/{environment}/{request.path.lstrip('/')}", safe="/:@!$&'()*+,;=~-._").encode()
    return path + (b"?" + request.query if request.query else b"")


def _routes(
    handlers: dict[Endpoint, Handler],
    bare: Callable[[Handler], Handler],
    environments: dict[str, ServedEnvironment],
) -> dict[tuple[str, str], tuple[Handler, ServedEnvironment]]:
    first = next(iter(environments.values()))
    routes: dict[tuple[str, str], tuple[Handler, ServedEnvironment]] = {}
    for endpoint, handler in handlers.items():
        if not endpoint.per_environment:
            routes[endpoint.method, endpoint.path()] = (handler, first)
            continue
        for name, environment in environments.items():
            routes[endpoint.method, endpoint.path(name)] = (handler, environment)
        if endpoint.needs_session and len(environments) > 1:
            routes[endpoint.method, endpoint.path()] = (bare(handler), first)
    return routes
