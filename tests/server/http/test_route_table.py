"""The table of routes: which handler a method and a path lead to."""

from typing import Any
from urllib.parse import unquote

import pytest

from ors import _protocol
from ors.errors import MethodNotAllowed, NotFound
from ors.server.http.answers import Answer, Headers, Redirect
from ors.server.http.requests import Request
from ors.server.http.routes import LONGEST_LOCATION, Handler, Routes


class Served:
    """As much of an environment as a route needs."""

    def __init__(self, name: str) -> None:
        self.name = name


def handler(name: str) -> Handler:
    return lambda request, environment: Answer(200, f"{name} of {environment.name}".encode())


def routes(*names: str) -> Routes:
    """The routes of environments with these names."""
    return Routes(
        {endpoint: handler(endpoint.name) for endpoint in _protocol.ENDPOINTS},
        lambda handler: lambda request, environment: Answer(200, b"by its session"),
        {name: Served(name) for name in names},  # type: ignore[misc]
        lambda method, path: handler(f"page {method} {path}"),
        lambda request: request.header(b"accept") == b"text/html",
    )


def asked(method: str, path: str, query: bytes = b"", *, origin: bool = False) -> Request:
    request = Request(method, path, query, {}, b"")
    request.more = Headers((b"vary", b"origin")) if origin else None
    return request


def found(table: Routes, request: Request) -> Any:
    """The answer of the handler that a request leads to."""
    handler, environment = table.exact.get((request.method, request.path)) or table.find(request)
    return handler(request, environment)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/health", b"health of lab"),
        ("HEAD", "/health", b"health of lab"),
        ("GET", "/health//", b"health of lab"),
        ("POST", "/lab/call", b"call of lab"),
        ("POST", "/OTHER/call/", b"call of other"),
        ("POST", "/call", b"by its session"),
        ("GET", "/-/metrics", b"page GET /-/metrics of lab"),
        ("HEAD", "/-/", b"page GET /- of lab"),
        ("POST", "/-/sessions", b"page POST /-/sessions of lab"),
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


@pytest.mark.parametrize(("path", "allow"), [("/health", "GET, HEAD"), ("/lab/call", "POST")])
def test_a_wrong_method_is_told_the_right_ones(path: str, allow: str) -> None:
    with pytest.raises(MethodNotAllowed, match=f"DELETE is not allowed here; use {allow}") as error:
        routes("lab").find(asked("DELETE", path))
    assert error.value.allow == allow


@pytest.mark.parametrize(
    ("names", "path", "text"),
    [
        (("lab",), "/lab/nothing", "nothing at this path; the environments are: lab"),
        (("lab",), "/health/more", "nothing at this path"),
        (("lab", "other"), "/nobody/tools", "the environments are: lab, other"),
        (("lab", "other"), "/", "try /list_environments"),
        (("lab",), "/" + "é" * LONGEST_LOCATION, "nothing at this path"),
    ],
    ids=["below an environment", "below an endpoint", "unknown", "nothing", "too long once it is quoted"],
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
