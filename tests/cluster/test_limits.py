"""What is too long, or from nobody who may ask, is refused in the same way at every front end."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from ors import Server
from ors.server.http.requests import KEYLESS_BODY_BYTES, MAX_HEADER_BYTES, MAX_TARGET_BYTES
from tests.requirements import proves
from tests.support.environments import Lab
from tests.support.in_process_cluster import ServerThread, linked_servers, minted, routing
from tests.support.live_server import hosted, serving
from tests.support.raw_http import Raw

FRONTS = ["server", "workers", "router", "asgi"]
PAGE = "https://app.example"
KEY = b"X-API-Key: secret-1\r\n"
WRONG = b"X-API-Key: wrong\r\n"


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Raw]]:
    def server() -> Server:
        return Server([Lab], api_keys=["one=secret-1", "two=secret-2"], cors_origins=[PAGE])

    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("limits")
        alone = Raw(stack.enter_context(serving(server())))
        made = stack.enter_context(
            linked_servers(2, folder, [Lab], api_keys=["one=secret-1"], cors_origins=[PAGE])
        )
        router = stack.enter_context(routing([alone.url], "secret-1", cors_origins=[PAGE]))
        asgi = Raw(stack.enter_context(hosted(server())))
        yield {"server": alone, "workers": made[0].raw, "router": router, "asgi": asgi}


@pytest.fixture(params=FRONTS)
def front(fronts: dict[str, Raw], request: pytest.FixtureRequest) -> Raw:
    return fronts[request.param]


@contextmanager
def sent(front: Raw, *parts: bytes) -> Iterator[socket.socket]:
    """A connection over which so much has been sent, each part when the one before it was read."""
    with socket.create_connection((front.host, front.port), 10) as connection:
        for part in parts:
            connection.sendall(part)
        yield connection


def head(front: Raw, method: str, target: str, *lines: bytes) -> bytes:
    first = f"{method} {target} HTTP/1.1\r\nHost: {front.host}:{front.port}\r\n".encode()
    return first + b"".join(lines) + b"\r\n"


def told(connection: socket.socket) -> tuple[int, bytes]:
    """The status of the next answer, and what has come of it."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(2**16)
        assert part, "the connection ended without an answer"
        received += part
    return int(received.split()[1]), received.lower()


def answered(front: Raw, request: bytes) -> tuple[int, bytes]:
    with sent(front, request) as connection:
        return told(connection)


@proves("http.limits")
@pytest.mark.parametrize("mark", ["", "?"], ids=["path", "query"])
def test_a_path_or_query_over_the_limit_is_414(front: Raw, mark: str) -> None:
    target = f"/health{mark}".ljust(MAX_TARGET_BYTES + 1, "x")
    status, text = answered(front, head(front, "GET", target, KEY))
    assert (status, b"ors-reason: limit" in text) == (414, True)


@pytest.mark.parametrize("size", [66_000, 1_000_000])
def test_a_path_far_over_the_limit_is_refused(front: Raw, size: int) -> None:
    # uvicorn's own connections cannot read a target over 65,535 bytes: they say 400.
    assert answered(front, head(front, "GET", "/".ljust(size, "x"), KEY))[0] in (400, 414)


def test_a_long_query_below_the_limit_is_fine(front: Raw) -> None:
    target = "/health?".ljust(MAX_TARGET_BYTES, "x")
    assert answered(front, head(front, "GET", target, KEY))[0] == 200


LINES = {
    "one header": b"X-Long: %b\r\n" % (b"y" * 70_000),
    "many": b"".join(b"X-%d: %b\r\n" % (n, b"y" * 90) for n in range(700)),
    "the same one": b"X-More: y\r\n" * 6400,
}


@proves("http.limits")
@pytest.mark.parametrize("lines", LINES.values(), ids=LINES)
def test_headers_over_the_limit_are_431(front: Raw, lines: bytes) -> None:
    assert MAX_HEADER_BYTES < len(lines) < MAX_HEADER_BYTES + 2**13
    status, text = answered(front, head(front, "GET", "/health", KEY, lines))
    assert (status, b"ors-reason: limit" in text) == (431, True)


def test_long_headers_below_the_limit_are_fine(front: Raw) -> None:
    lines = b"".join(b"X-%d: %b\r\n" % (n, b"y" * 90) for n in range(600))
    assert answered(front, head(front, "GET", "/health", KEY, lines))[0] == 200


ONCE = ["Host", "X-Session-ID", "X-API-Key", "Idempotency-Key", "X-Secrets"]


@proves("http.single-headers")
@pytest.mark.parametrize("second", ["another", "in small letters"])
@pytest.mark.parametrize("name", ONCE)
def test_a_header_that_comes_once_is_refused_twice(front: Raw, name: str, second: str) -> None:
    value = {"Host": "127.0.0.1", "X-API-Key": "secret-1"}.get(name, "some")
    lines = [b"" if name == "X-API-Key" else KEY, f"{name}: {value}\r\n".encode()]
    if name != "Host":
        assert answered(front, head(front, "GET", "/health", *lines))[0] == 200
    other = name.lower() if second == "in small letters" else name
    lines.append(f"{other}: {'other' if second == 'another' else value}\r\n".encode())
    assert answered(front, head(front, "GET", "/health", *lines))[0] == 400


def test_what_belongs_to_another_server_has_the_same_limits(
    fronts: dict[str, Raw], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with linked_servers(2, tmp_path_factory.mktemp("other"), [Lab]) as made:
        sid = minted(made, 1)
        for target in ("/lab/prompt?" + "x" * 70_000, "/lab/prompt/" + "x" * 70_000):
            assert made[0].raw.get(target, sid=sid).status == 414
        assert made[0].raw.get("/lab/prompt?" + "x" * 15_000, sid=sid).status == 200


LENGTH = b"Content-Length: 1000000\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


@proves("http.before-body")
@pytest.mark.parametrize("framing", [LENGTH, CHUNKED], ids=["length", "chunked"])
@pytest.mark.parametrize("key", [b"", WRONG], ids=["none", "wrong"])
def test_without_a_right_key_no_body_is_waited_for(front: Raw, framing: bytes, key: bytes) -> None:
    status, text = answered(front, head(front, "POST", "/create", framing, key) + b"5\r\nhello")
    assert (status, b"ors-reason: key" in text) == (401, True)


@pytest.mark.parametrize("key", [b"secret-1", b"secret-2"])
def test_with_a_right_key_the_body_may_come_in_parts(fronts: dict[str, Raw], key: bytes) -> None:
    for front in (fronts["server"], fronts["router"], fronts["asgi"]):
        body = b'{"split": "train", "more": "%b"}' % (b"x" * 300_000)
        framing = b"Content-Length: %d\r\nAuthorization: Bearer %b\r\n" % (len(body), key)
        with sent(front, head(front, "POST", "/lab/num_tasks", framing)) as connection:
            assert front.get("/health").status == 200
            connection.sendall(body[:200_000])
            assert front.get("/health").status == 200
            connection.sendall(body[200_000:])
            assert told(connection)[0] == 200


def test_a_refused_page_is_told_so_though_its_body_is_not_whole(front: Raw) -> None:
    origin = f"Origin: {PAGE}\r\n".encode()
    status, text = answered(front, head(front, "POST", "/create", LENGTH, WRONG, origin) + b"{")
    assert status == 401
    assert b"access-control-allow-origin: " + PAGE.encode() in text


def test_no_body_of_a_foreign_page_is_waited_for(front: Raw) -> None:
    status, text = answered(
        front, head(front, "POST", "/create", LENGTH, KEY, b"Origin: http://x\r\n") + b"{"
    )
    assert (status, b"ors-reason: origin" in text) == (403, True)


def test_whoever_waits_for_a_word_before_the_body_gets_none_without_a_key(fronts: dict[str, Raw]) -> None:
    for front in (fronts["server"], fronts["workers"]):
        expecting = b"Expect: 100-continue\r\n"
        assert answered(front, head(front, "POST", "/create", LENGTH, expecting))[0] == 401
        assert answered(front, head(front, "POST", "/create", LENGTH, expecting, KEY))[0] == 100


def test_what_needs_no_key_takes_no_long_body(fronts: dict[str, Raw]) -> None:
    for front in (fronts["server"], fronts["workers"], fronts["asgi"]):
        for method, more in (("POST", b""), ("OPTIONS", f"Origin: {PAGE}\r\n".encode())):
            begin = head(front, method, "/health", LENGTH, more) + b"x" * KEYLESS_BODY_BYTES
            with sent(front, begin) as connection:
                connection.sendall(b"x" * 10)
                assert told(connection)[0] == 413


@proves("http.slash")
@pytest.mark.parametrize("path", ["/health", "/-/health/live", "/-/health/ready"])
def test_health_needs_no_key_with_a_slash_either(front: Raw, path: str) -> None:
    assert front.get(f"{path}/").status == front.get(path).status == 200


@pytest.mark.parametrize("path", ["/-/metrics", "/-/sessions"])
def test_a_slash_changes_nothing_of_what_all_servers_say(fronts: dict[str, Raw], path: str) -> None:
    key = {"X-API-Key": "secret-1"}
    labelled = [b'server="1"' in fronts["workers"].get(p, headers=key).body for p in (path, f"{path}/")]
    assert labelled == [path == "/-/metrics"] * 2
    assert fronts["router"].get(f"{path}/", headers=key).status == 200


def test_a_session_of_another_server_is_ended_by_a_path_with_a_slash(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with linked_servers(2, tmp_path_factory.mktemp("slash"), [Lab]) as made:
        sid = minted(made, 1)
        assert made[0].raw("DELETE", f"/-/sessions/{sid}/").json() == {"sid": sid}
        assert _ended(made[1], sid)


def _ended(one: ServerThread, sid: str) -> bool:
    return one.raw.post("/ping", sid=sid).status == 410
