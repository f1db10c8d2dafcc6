"""The table of routes: which handler a method and a path lead to."""

import re
from typing import Any
from urllib.parse import unquote

import pytest

from ors import _protocol
from ors.cluster.servers import RouterApp
from ors.errors import MethodNotAllowed, NotFound
from ors.limits import Limits
from ors.server.http.answers import Answer, Headers, Redirect
from ors.server.http.requests import Request
from ors.server.http.routing import LONGEST_LOCATION, AtRouter, Route, Routes, RouteTable
from ors.server.routes import AT_ROUTER, ROUTES, is_open


class Served:
    """As much of an environment as a route needs."""

    def __init__(self, name: str) -> None:
        self.name = name


def said(route: Route[Any]) -> Route[str]:
    """The same row, with a handler that says what it was called with."""

    def handler(owner: str, *given: Any) -> Answer:
        named = [each.name if isinstance(each, Served) else each for each in given[:-1]]
        return Answer(200, f"{route.pattern} {named}".encode())

    return route._replace(handler=handler)


def routes(*names: str) -> Routes:
    """The routes of environments with these names."""
    table = Routes(
        {name: Served(name) for name in names},  # type: ignore[misc]
        lambda request: request.headers.get(b"accept") == b"text/html",
        lambda request: Served("its session's"),  # type: ignore[arg-type, return-value]
    )
    table.add("owner", [said(route) for route in ROUTES])
    return table


def asked(method: str, path: str, query: bytes = b"", *, origin: bool = False) -> Request:
    request = Request(method, path, query, {}, b"")
    request.more = Headers((b"vary", b"origin")) if origin else None
    return request


def found(table: Routes, request: Request) -> Any:
    """The answer of the handler that a request leads to."""
    handler = table.exact.get((request.method, request.path)) or table.find(request)
    return handler(request)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/health", b"/health []"),
        ("HEAD", "/health", b"/health []"),
        ("GET", "/health//", b"/health []"),
        ("POST", "/lab/call", b"/{environment}/call ['lab']"),
        ("POST", "/OTHER/call/", b"/{environment}/call ['other']"),
        ("POST", "/call", b'/{environment}/call ["its session\'s"]'),
        ("GET", "/-/metrics", b"/-/metrics []"),
        ("GET", "/-/metrics/", b"/-/metrics []"),
        ("HEAD", "/-/", b"/-/ []"),
        ("DELETE", "/-/sessions/a-1", b"/-/sessions/{sid} ['a-1']"),
        ("DELETE", "/-/sessions/with/a slash\n/", b"/-/sessions/{sid} ['with/a slash\\n']"),
        ("GET", "/-/api/calls/a-1", b"/-/api/calls/{sid} ['a-1']"),
        ("HEAD", "/-/page/app.js", b"/-/page/{file} ['app.js']"),
    ],
)
def test_a_path_leads_to_its_handler_however_it_is_written(method: str, path: str, body: bytes) -> None:
    assert found(routes("lab", "other"), asked(method, path)).body == body


@pytest.mark.parametrize("path", ["/health", "/lab/call", "/nowhere", "/-/sessions", "/-/link", "/"])
def test_a_preflight_is_answered_at_every_path(path: str) -> None:
    answer = found(routes("lab"), asked("OPTIONS", path, origin=True))
    assert answer.status == 204
    assert dict(answer.headers.pairs)[b"access-control-allow-methods"] == b"GET, POST, DELETE"


def test_options_of_no_allowed_page_are_no_preflight() -> None:
    with pytest.raises(MethodNotAllowed):
        routes("lab").find(asked("OPTIONS", "/health"))


@pytest.mark.parametrize(
    ("path", "allow"),
    [("/health", "GET, HEAD"), ("/lab/call", "POST"), ("/-/fork", "POST"), ("/-/metrics/", "GET, HEAD")],
)
def test_a_wrong_method_is_told_the_right_ones(path: str, allow: str) -> None:
    with pytest.raises(MethodNotAllowed, match=f"DELETE is not allowed here; use {allow}") as error:
        routes("lab").find(asked("DELETE", path))
    assert error.value.allow == allow


@pytest.mark.parametrize(
    ("names", "path", "text"),
    [
        (("lab",), "/lab/nothing", "Not found; the environments are: lab"),
        (("lab",), "/health/more", "Not found"),
        (("lab",), "/-/nothing", "Not found"),
        (("lab",), "/-/tools", "Not found"),
        (("lab", "other"), "/nobody/tools", "the environments are: lab, other"),
        (("lab", "other"), "/", "try /list_environments"),
        (("lab",), "/" + "é" * LONGEST_LOCATION, "Not found"),
    ],
    ids=[
        "below an environment",
        "below an endpoint",
        "of ours",
        "of ours with a name of the standard",
        "unknown",
        "nothing",
        "too long once it is quoted",
    ],
)
def test_a_path_that_leads_nowhere_is_not_found(names: tuple[str, ...], path: str, text: str) -> None:
    with pytest.raises(NotFound, match=text):
        routes(*names).find(asked("GET", path))


@pytest.mark.parametrize(
    ("names", "path", "query", "location"),
    [
        (("lab",), "/tools", b"a=b", b"/lab/tools?a=b"),
        (("lab",), "/a b\r\n", b"", b"/lab/a%20b%0D%0A"),
        (("lab",), "//evil.example", b"", b"/lab/evil.example"),
        (("lab", "other"), "/tools", b"", b"/lab/tools"),
    ],
)
def test_a_path_without_an_environment_is_redirected_below_the_first(
    names: tuple[str, ...], path: str, query: bytes, location: bytes
) -> None:
    with pytest.raises(Redirect) as error:
        routes(*names).find(asked("GET", path, query))
    assert error.value.location == location
    assert unquote(location.partition(b"?")[0].decode()).endswith(path.lstrip("/"))


def test_a_row_may_have_parameters_anywhere_in_its_path() -> None:
    table = RouteTable(
        [("GET", "/-/environments/{name}", 1), ("POST", "/-/mcp", 2), ("POST", "/-/{a}/x.y/{b}", 3)]
    )
    assert table.find("GET", "/-/environments/lab/") == (1, {"name": "lab"})
    assert table.find("HEAD", "/-/environments/a/b") == (1, {"name": "a/b"})
    assert table.find("POST", "//-/mcp") == (2, {})
    assert table.find("POST", "/-/1/x.y/2/3") == (3, {"a": "1", "b": "2/3"})
    for method, path in (
        ("POST", "/-/1/x-y/2"),
        ("POST", "/-/1/1/x.y/2"),
        ("GET", "/-/environments/"),
        ("GET", "/"),
    ):
        assert table.find(method, path) is None
    assert table.methods("/-/environments/lab") == ["GET", "HEAD"]


def test_a_browser_that_opens_the_bare_address_is_led_to_the_inspector() -> None:
    visit = Request("GET", "/", b"", {b"accept": b"text/html"}, b"")
    with pytest.raises(Redirect) as error:
        routes("lab").find(visit)
    assert (error.value.location, error.value.for_good) == (b"/-/", False)


def test_a_router_knows_what_to_do_with_every_path_of_the_table() -> None:
    for route in ROUTES:
        path = re.sub(r"\{\w+\}", "some", route.pattern)
        found = AT_ROUTER.find(route.method, path)
        assert found is not None
        assert found[0] is route
        assert ("sid" in found[1]) == ("{sid}" in route.pattern)


def test_rows_that_the_router_answers_or_merges_have_a_handler_there() -> None:
    router = RouterApp(Limits())
    merged = {*router._router._merged._pages, "/-/api/live"}
    assert {route.pattern for route in ROUTES if route.at_router is AtRouter.ROUTER} == set(router._own)
    assert {route.pattern for route in ROUTES if route.at_router is AtRouter.MERGED} == merged


def test_every_endpoint_of_the_standard_has_a_row() -> None:
    rows = {(route.method, route.pattern) for route in ROUTES}
    endpoints = (*_protocol.ENDPOINTS, _protocol.FORK)
    assert {(each.method, each.path("{environment}")) for each in endpoints} <= rows


@pytest.mark.parametrize(
    ("path", "open_to_all"),
    [
        ("/health", True),
        ("/health//", True),
        ("/-/health/ready", True),
        ("/-", True),
        ("/-/", True),
        ("/-/page/app.js", True),
        ("/-/metrics", False),
        ("/-/page", False),
        ("/-/api/about", False),
        ("/", False),
        ("/lab/call", False),
    ],
)
def test_only_health_and_the_page_itself_need_no_key(path: str, open_to_all: bool) -> None:
    assert is_open(path) is open_to_all
