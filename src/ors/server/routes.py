"""The table of paths: every endpoint of a server is one row, with what a router does with it.

Runs that the inspector shows have rows of their own, in `ors/inspector/runs_api.py`.
"""

from collections.abc import Callable
from typing import Any, Concatenate

from ors import _protocol
from ors._protocol import Endpoint
from ors.server.admin.pages import Inspector, Pages
from ors.server.http.endpoints import Endpoints
from ors.server.http.mcp import MCP
from ors.server.http.programs import Programs
from ors.server.http.requests import KEYLESS_BODY_BYTES, MCP_BODY_BYTES
from ors.server.http.routing import (
    HOME,
    LIVE,
    METRICS,
    OPENAPI,
    READY,
    SESSIONS,
    AtRouter,
    Coming,
    Route,
    RouteTable,
)
from ors.server.http.streams import Outcome

ABOUT = "/-/api/about"
LIVE_FEED = "/-/api/live"
LIVE_NOW = "/-/api/live/now"
PAGE_FILES = "/-/page/{file}"


def _standard(
    endpoint: Endpoint,
    handler: Callable[Concatenate[Endpoints, ...], Outcome | Coming],
    at_router: AtRouter = AtRouter.ANY,
    *,
    needs_key: bool = True,
) -> Route[Endpoints]:
    return Route(endpoint.method, endpoint.path("{environment}"), handler, at_router, needs_key)


STANDARD = (
    _standard(_protocol.HEALTH, Endpoints.health, AtRouter.ROUTER, needs_key=False),
    _standard(_protocol.VERSION, Endpoints.version),
    _standard(_protocol.LIST_ENVIRONMENTS, Endpoints.list_environments),
    _standard(_protocol.CREATE_SESSION, Endpoints.create_session, AtRouter.ROUTER),
    _standard(_protocol.CREATE, Endpoints.create, AtRouter.CREATE),
    _standard(_protocol.DELETE, Endpoints.delete, AtRouter.SESSION),
    # It deletes nothing: ors-sdk 0.1.0 and openreward 0.1.167 call it after every discovery call.
    _standard(_protocol.DELETE_SESSION, Endpoints.delete_session),
    _standard(_protocol.PING, Endpoints.ping, AtRouter.SESSION),
    _standard(_protocol.TOOLS, Endpoints.tools),
    _standard(_protocol.SPLITS, Endpoints.splits),
    _standard(_protocol.TASKS, Endpoints.tasks),
    _standard(_protocol.NUM_TASKS, Endpoints.num_tasks),
    _standard(_protocol.TASK, Endpoints.task),
    _standard(_protocol.TASK_RANGE, Endpoints.task_range),
    _standard(_protocol.GET_TASK, Endpoints.task),
    _standard(_protocol.GET_TASK_RANGE, Endpoints.task_range),
    _standard(_protocol.TASK_TOOLS, Endpoints.task_tools, AtRouter.SESSION),
    _standard(_protocol.PROMPT, Endpoints.prompt, AtRouter.SESSION),
    _standard(_protocol.CALL, Endpoints.call, AtRouter.SESSION),
    Route("POST", "/v1/rollouts", Endpoints.log_rollout),
)

PAGES = (
    Route("GET", LIVE, Pages.live, AtRouter.ROUTER, needs_key=False),
    Route("GET", READY, Pages.ready, AtRouter.MERGED, needs_key=False),
    Route("GET", METRICS, Pages.metrics, AtRouter.MERGED),
    Route("GET", OPENAPI, Pages.openapi),
    Route("GET", f"{_protocol.DESCRIPTION.path()}/{{environment}}", Pages.description),
    Route("GET", SESSIONS, Pages.sessions, AtRouter.MERGED),
    Route("DELETE", f"{SESSIONS}/{{sid}}", Pages.end_session, AtRouter.SESSION),
    Route(_protocol.FORK.method, _protocol.FORK.path(), Pages.fork, AtRouter.SESSION),
)

MCP_ROUTES = (
    Route(_protocol.MCP.method, _protocol.MCP.path(), MCP.open, AtRouter.SESSION),
    Route(_protocol.SCORE.method, _protocol.SCORE.path(), MCP.score, AtRouter.SESSION),
    Route("POST", f"{_protocol.MCP.path()}/{{sid}}", MCP.message, AtRouter.SESSION, needs_key=False),
)

PROGRAM_ROUTES = (
    Route(_protocol.PROGRAM.method, _protocol.PROGRAM.path(), Programs.start, AtRouter.SESSION),
    Route(
        _protocol.PROGRAM_DATA.method, _protocol.PROGRAM_DATA.path(), Programs.pass_on, AtRouter.SESSION,
        has_raw_body=True,
    ),
)  # fmt: skip

INSPECTOR = (
    Route("GET", HOME, Inspector.home, needs_key=False),
    Route("GET", PAGE_FILES, Inspector.file, needs_key=False),
    Route("GET", ABOUT, Inspector.about),
    Route("GET", "/-/api/environments", Inspector.environments),
    Route("GET", "/-/api/tasks", Inspector.tasks),
    Route("GET", LIVE_FEED, Inspector.live, AtRouter.MERGED, is_feed=True),
    Route("GET", LIVE_NOW, Inspector.live_now),
    Route("GET", "/-/api/calls/{sid}", Inspector.calls, AtRouter.SESSION, is_feed=True),
    Route("GET", "/-/api/sandbox/{sid}", Inspector.sandbox, AtRouter.SESSION),
)

ROUTES: tuple[Route[Any], ...] = (*STANDARD, *PAGES, *MCP_ROUTES, *PROGRAM_ROUTES, *INSPECTOR)

_OPEN = {route.pattern.rstrip("/") for route in ROUTES if not route.needs_key and "{" not in route.pattern}
_OPEN_FOLDERS = tuple(
    route.pattern.partition("{")[0] for route in ROUTES if not route.needs_key and "{" in route.pattern
)


def is_open(path: str) -> bool:
    """Whether a path needs no key. The inspector's page holds nothing secret, and asks for the key."""
    if path in _OPEN or path.startswith(_OPEN_FOLDERS):
        return True
    return path[-1:] == "/" and path.rstrip("/") in _OPEN


def keyless_bytes(path: str) -> int:
    """The longest body of a request without a key, on a server with keys."""
    return MCP_BODY_BYTES if path.startswith(f"{_protocol.MCP.path()}/") else KEYLESS_BODY_BYTES


def _without_environments() -> RouteTable[Route[Any]]:
    """The table for routers, which do not know the environments: `{environment}` is any segment, or none."""
    bare = [(row.method, row.without_environment, row) for row in ROUTES if row.per_environment]
    return RouteTable([*((row.method, row.pattern, row) for row in ROUTES), *bare])


AT_ROUTER = _without_environments()
