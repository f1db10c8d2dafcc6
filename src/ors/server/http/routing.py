"""Tables of routes: the handler of a request by its method and path, or the error for no such path."""

import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Any, Concatenate, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from ors import _protocol
from ors.errors import MethodNotAllowed, NotFound, ORSError
from ors.server.episodes.environments import ServedEnvironment
from ors.server.http.answers import Answer, Redirect
from ors.server.http.origin_check import is_preflight, preflight
from ors.server.http.requests import Request
from ors.server.http.streams import Outcome

Coming = Coroutine[Any, Any, Answer]
Handler = Callable[[Request], Outcome | Coming]
Owner = TypeVar("Owner")
Value = TypeVar("Value")

HOME = f"/{_protocol.OWN_PREFIX}/"
"""The inspector's page. All paths that are not of the standard are below it."""
LIVE, READY = "/-/health/live", "/-/health/ready"
METRICS, SESSIONS, OPENAPI = "/-/metrics", "/-/sessions", "/-/openapi.json"
LONGEST_LOCATION = 16 * 1024
"""Longest redirect, quoted; longer ones would not fit into a header."""

_ENVIRONMENT = "/{environment}/"
_ROOT_NAMES = {e.name for e in _protocol.ENDPOINTS if not e.per_environment} | {_protocol.OWN_PREFIX}
_BARE_DISCOVERY = {e.name for e in _protocol.ENDPOINTS if e.per_environment and not e.needs_session}


class AtRouter(Enum):
    """What a router, or a worker with peers, does with a request that reaches it."""

    ANY = "forwards it to any server; a worker answers it"
    SESSION = "forwards it to the server that has the session: of the header, or `{sid}` of the path"
    CREATE = "forwards it to the server that is to have the session"
    MERGED = "asks all servers, and merges their answers"
    ROUTER = "answers it"


class Route(NamedTuple, Generic[Owner]):
    """A row of a table: a method, the pattern of a path, and the method of `Owner` that answers.

    A pattern may have parameters, `/-/sessions/{sid}`; the last segment also takes slashes. The handler gets
    their values before the request; for `{environment}`, the environment.
    """

    method: str
    pattern: str
    handler: Callable[Concatenate[Owner, ...], Outcome | Coming]
    at_router: AtRouter = AtRouter.ANY
    needs_key: bool = True
    is_feed: bool = False
    """Whether the answer may never end."""
    has_raw_body: bool = False
    """Whether the body of a request is not JSON. Only for patterns without parameters."""

    @property
    def per_environment(self) -> bool:
        return self.pattern.startswith(_ENVIRONMENT)

    @property
    def without_environment(self) -> str:
        """The path that a client without a variant asks for: openreward 0.1.167."""
        return self.pattern.removeprefix(_ENVIRONMENT[:-1])


class RouteTable(Generic[Value]):
    def __init__(self, rows: Iterable[tuple[str, str, Value]] = ()) -> None:
        self.exact: dict[tuple[str, str], Value] = {}
        """By method and canonical path, for patterns without parameters."""
        self._patterns: list[tuple[str, re.Pattern[str], Value]] = []
        self.add(rows)

    def add(self, rows: Iterable[tuple[str, str, Value]]) -> None:
        for method, pattern, value in rows:
            path = _canonical(pattern)
            if "{" in path:
                self._patterns.append((method, _compiled(path), value))
            else:
                self.exact[method, path] = value

    def find(self, method: str, path: str) -> tuple[Value, dict[str, str]] | None:
        """The value of a path, however its slashes are written, and the parameters in it."""
        method, path = "GET" if method == "HEAD" else method, _canonical(path)
        value = self.exact.get((method, path))
        if value is not None:
            return value, {}
        for verb, pattern, value in self._patterns:
            if verb == method and (found := pattern.fullmatch(path)):
                return value, found.groupdict()
        return None

    def methods(self, path: str) -> list[str]:
        path = _canonical(path)
        found = {verb for verb, where in self.exact if where == path}
        found |= {verb for verb, pattern, _ in self._patterns if pattern.fullmatch(path)}
        return sorted(found | {"HEAD"} if "GET" in found else found)


def _canonical(path: str) -> str:
    return f"/{path.strip('/')}"


def _compiled(path: str) -> re.Pattern[str]:
    *before, last = [
        f"(?P<{part[1:-1]}>[^/]+)" if part.startswith("{") else re.escape(part) for part in path.split("/")
    ]
    return re.compile("/".join([*before, last.replace("[^/]+", ".+")]), re.DOTALL)


class Routes:
    """The handlers of one server, and the errors for all other paths."""

    def __init__(
        self,
        environments: dict[str, ServedEnvironment],
        is_visit: Callable[[Request], bool],
        environment_of: Callable[[Request], ServedEnvironment],
    ) -> None:
        self._environments = environments
        self._is_visit = is_visit
        self._environment_of = environment_of
        self._table: RouteTable[Callable[..., Outcome | Coming]] = RouteTable()
        self.exact = self._table.exact
        """By method and canonical path: all of the standard."""

    def add(self, owner: Owner, routes: Iterable[Route[Owner]]) -> None:
        for route in routes:
            self._table.add(self._bound(route, partial(route.handler, owner)))

    def _bound(self, route: Route[Any], handler: Callable[..., Any]) -> Iterable[tuple[str, str, Handler]]:
        if not route.per_environment:
            yield route.method, route.pattern, handler
            return
        for name, environment in self._environments.items():
            yield route.method, f"/{name}{route.without_environment}", partial(handler, environment)
        if route.at_router is AtRouter.SESSION and len(self._environments) > 1:
            bare = partial(self._of_session, handler)
            yield route.method, route.without_environment, bare

    def _of_session(self, handler: Callable[..., Outcome | Coming], request: Request) -> Outcome | Coming:
        return handler(self._environment_of(request), request)

    def find(self, request: Request) -> Handler:
        """Finds the handler of a path that has parameters, or is not canonical.

        Raises:
            NotFound, MethodNotAllowed, Redirect: there is none.
        """
        first, _, rest = request.path.strip("/").partition("/")
        name = first.lower()
        path = f"/{name if name in self._environments else first}/{rest}"
        found = self._table.find(request.method, path)
        if found is not None:
            handler, parameters = found
            return partial(handler, *parameters.values()) if parameters else handler
        if is_preflight(request):
            return preflight
        if self._is_visit(request):
            raise Redirect(HOME.encode(), for_good=False)
        if allowed := self._table.methods(path):
            allow = ", ".join(allowed)
            raise MethodNotAllowed(f"{request.method} is not allowed here; use {allow}", allow=allow)
        raise self._not_found(request, name)

    def _not_found(self, request: Request, first: str) -> ORSError:
        if first in self._environments or first in _ROOT_NAMES:
            return self._nothing()
        if len(self._environments) == 1 or request.path.strip("/") in _BARE_DISCOVERY:
            below = _below(next(iter(self._environments)), request)
            return Redirect(below) if len(below) <= LONGEST_LOCATION else self._nothing()
        return (
            unknown_environment(self._environments)
            if first
            else NotFound("Not found; try /list_environments")
        )

    def _nothing(self) -> NotFound:
        return NotFound(f"Not found; the environments are: {', '.join(self._environments)}")


def unknown_environment(environments: Mapping[str, ServedEnvironment]) -> NotFound:
    return NotFound(f"Unknown environment; the environments are: {', '.join(environments)}")


def _below(environment: str, request: Request) -> bytes:
    path = quote(f"/{environment}/{request.path.lstrip('/')}", safe="/:@!$&'()*+,;=~-._").encode()
    return path + (b"?" + request.query if request.query else b"")
