"""Connections with odd and hostile requests."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from ors import Limits, Server
from ors.server.connections.parser import MAX_UPGRADES
from tests.requirements import proves
from tests.support.environments import Lab
from tests.support.live_server import serving
from tests.support.raw_http import Raw, as_body

HOST = b"Host: 127.0.0.1\r\n"


@contextmanager
def connected(raw: Raw) -> Iterator[socket.socket]:
    with socket.create_connection((raw.host, raw.port), 20) as connection:
        yield connection


def status(connection: socket.socket) -> int:
    """The status of the next answer, whose body is left unread."""
    received = b""
    while b"\r\n" not in received:
        part = connection.recv(4096)
        assert part, "the connection ended without an answer"
        received += part
    return int(received.split()[1])


def post(path: str, body: bytes, more: bytes = b"") -> bytes:
    head = b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n%b\r\n" % (path.encode(), HOST, len(body), more)
    return head + body


@pytest.mark.parametrize("origin", ["http://[", "http://\xff\xfe", "://", "http://a b", "x" * 5000])
def test_an_origin_that_is_none_is_turned_away(raw: Raw, origin: str) -> None:
    assert raw.get("/health", headers={"Origin": origin}).status == 403


def test_a_number_that_is_no_offset_is_400(raw: Raw) -> None:
    assert raw.get(f"/-/sessions?offset={'9' * 5000}").status == 400


def test_headers_in_two_parts_before_a_long_body_are_not_too_long(raw: Raw) -> None:
    body = b'{"split": "train", "more": "%b"}' % (b"x" * 200_000)
    whole = post("/lab/tasks", body, b"X-More: y\r\n")
    with connected(raw) as connection:
        connection.sendall(whole[:60])
        assert raw.get("/health").status == 200  # so the first part was read by itself
        connection.sendall(whole[60:])
        assert status(connection) == 200


@pytest.mark.parametrize("line", [b"X-More: y\r\n", b"y"], ids=["many", "one that does not end"])
@pytest.mark.parametrize(
    "begin",
    [
        b"GET /health HTTP/1.1\r\n" + HOST + b"X: ",
        b"POST /lab/tasks HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nX: ",
    ],
    ids=["headers", "trailers"],
)
def test_endless_headers_and_trailers_are_431(raw: Raw, begin: bytes, line: bytes) -> None:
    with connected(raw) as connection:
        connection.sendall(begin)
        assert raw.get("/health").status == 200
        try:
            for _ in range(100):
                connection.sendall(line * (50_000 // len(line)))
        except OSError:
            return  # the server has closed: the answer may be lost behind what we still sent
        assert status(connection) == 431


def test_headers_behind_a_long_body_have_the_same_limit(raw: Raw) -> None:
    long = b"GET /health HTTP/1.1\r\n" + HOST + b"X-More: y\r\n" * 9000 + b"\r\n"
    with connected(raw) as connection:
        connection.sendall(post("/lab/nowhere", b"x" * 100_000) + long)
        received = read_all(connection)
    assert [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]] == [b"404", b"431"]


def test_any_number_of_requests_may_come_at_once(raw: Raw) -> None:
    get = b"GET /health HTTP/1.1\r\n" + HOST + b"%b\r\n"
    long, last = get % (b"X: %b\r\n" % (b"y" * 60_000)), get % b"Connection: close\r\n"
    nowhere = post("/lab/nowhere", b"x" * 100_000)
    with connected(raw) as connection, ThreadPoolExecutor(1) as pool:
        received = pool.submit(read_all, connection)
        connection.sendall((get % b"") * 5000 + long + nowhere + long + last)
        statuses = [part[:3] for part in received.result(20).split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200"] * 5001 + [b"404", b"200", b"200"]


def test_a_trailer_is_no_header(raw: Raw) -> None:
    chunked = b"POST /ping HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n0\r\nX-Session-ID: %b\r\n\r\n"
    with connected(raw) as connection:
        connection.sendall(chunked % (HOST, raw.session().encode()))
        assert status(connection) == 400


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_wish_for_another_protocol_is_passed_over(raw: Raw, method: str) -> None:
    # curl --http2 and Java's client send this with their first request.
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}
    connection = raw.connection()
    for _ in range(2):
        path, body = ("/health", None) if method == "GET" else ("/lab/num_tasks", {"split": "train"})
        connection.request(method, path, as_body(body), headers)
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.read() == (b'{"status":"ok"}' if method == "GET" else b'{"num_tasks":5}')
    connection.close()


def test_wishes_for_another_protocol_behind_each_other_have_an_end(
    raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    wish = b"GET /health HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    received = b""
    with connected(raw) as connection:
        connection.sendall(wish * 600)
        try:
            while part := connection.recv(2**16):
                received += part
        except ConnectionResetError:
            pass  # it closed while more was on its way
    assert received.count(b"HTTP/1.1 200") <= MAX_UPGRADES
    assert caplog.text == ""


def test_a_body_over_the_limit_is_413_with_a_reason_and_counted() -> None:
    with serving(Server([Lab], limits=Limits(body_bytes=1000))) as url:
        raw = Raw(url)
        for number in range(2):
            answer = raw.post("/lab/tasks", b"x" * (1001 + number))
            assert (answer.status, answer.headers["ors-reason"]) == (413, "limit")
        metrics = raw.get("/-/metrics").body
    assert b'ors_requests_rejected_total{reason="limit"} 2.0' in metrics


@pytest.mark.parametrize("chunked", [False, True])
def test_whoever_still_sends_a_body_over_the_limit_gets_the_answer(chunked: bool) -> None:
    parts = [b"x" * 2**16] * 500  # more than the buffers of both sides
    with serving(Server([Lab], limits=Limits(body_bytes=1000))) as url:
        connection = Raw(url).connection()
        length = {} if chunked else {"Content-Length": str(500 * 2**16)}
        connection.request("POST", "/lab/tasks", iter(parts), length, encode_chunked=chunked)
        assert connection.getresponse().status == 413
        connection.close()


def test_it_is_no_proxy(raw: Raw) -> None:
    with connected(raw) as connection:
        connection.sendall(b"CONNECT example.org:443 HTTP/1.1\r\n" + HOST + b"\r\n")
        assert status(connection) == 400


def read_all(connection: socket.socket) -> bytes:
    """Everything, up to the end of the connection."""
    received = b""
    while part := connection.recv(2**16):
        received += part
    return received


REFUSED = {
    "garbage": b"\0\0 garbage\r\n\r\n",
    "a body without an end": b"POST /lab/tasks HTTP/1.1\r\n" + HOST + b"Content-Length: x\r\n\r\n",
    "a body over the limit": b"POST /lab/tasks HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999\r\n\r\n",
}


@pytest.mark.parametrize(
    ("wrong", "status"), list(zip(REFUSED.values(), (400, 400, 413), strict=True)), ids=REFUSED
)
def test_what_is_refused_behind_good_requests_is_answered_after_them(
    raw: Raw, wrong: bytes, status: int
) -> None:
    sid = raw.session(task={"id": "garbage"})
    Lab.gates["garbage.hold"].clear()
    call = post("/lab/call", b'{"name": "hold", "input": {}}', f"X-Session-ID: {sid}\r\n".encode())
    tasks = post("/lab/num_tasks", b'{"split": "train"}')
    with connected(raw) as connection:
        connection.sendall(call + tasks + b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n" + wrong)
        assert raw.get("/health").status == 200  # so all of it was read
        Lab.gates["garbage.hold"].set()
        received = read_all(connection)
    places = [received.index(text) for text in (b"event: end", b'{"num_tasks":5}', b'{"status":"ok"}')]
    assert places == sorted(places)
    rest = received[places[-1] :]
    assert rest.count(b"HTTP/1.1 ") == 1
    assert b"HTTP/1.1 %d " % status in rest
    assert b"connection: close" in rest
    assert received.count(b"HTTP/1.1 200 ") == 3


def test_nothing_is_read_behind_what_was_refused(raw: Raw) -> None:
    sid = raw.session(task={"id": "behind"})
    call = post("/lab/call", b'{"name": "hold", "input": {}}', f"X-Session-ID: {sid}\r\n".encode())
    with connected(raw) as connection:
        connection.sendall(call + b"\0 garbage\r\n\r\n")
        assert raw.get("/health").status == 200
        connection.sendall(post("/delete", b"", f"X-Session-ID: {sid}\r\n".encode()))
        assert raw.get("/health").status == 200
        Lab.gates["behind.hold"].set()
        received = read_all(connection)
    assert (received.count(b"HTTP/1.1 200 "), received.count(b"HTTP/1.1 400 ")) == (1, 1)
    assert raw.call(sid, "nothing").result()["ok"]
    assert Lab.counts["behind.hold"] == 1


@proves("http.half-closed")
def test_whoever_stops_sending_has_left(raw: Raw) -> None:
    sid = raw.session(task={"id": "half"})
    key = f"X-Session-ID: {sid}\r\nIdempotency-Key: half\r\n".encode()
    with connected(raw) as connection:
        connection.sendall(post("/lab/call", b'{"name": "hold", "input": {}}', key))
        assert Lab.gates["half.held"].wait(20)
        connection.shutdown(socket.SHUT_WR)
        read_all(connection)  # it ends, and the call does not
    Lab.gates["half.hold"].set()
    assert raw.call(sid, "hold", headers={"Idempotency-Key": "half"}).result()["ok"]
    assert Lab.counts["half.hold"] == 1


@proves("http.half-closed")
def test_whoever_stops_sending_gets_what_is_answered_at_once(raw: Raw) -> None:
    with connected(raw) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n")
        connection.shutdown(socket.SHUT_WR)
        assert read_all(connection).endswith(b'{"status":"ok"}')


@proves("http.expect")
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_only_a_client_of_http_1_1_is_told_to_continue(raw: Raw, version: str) -> None:
    body = b'{"split":"train"}'
    sent = post("/lab/num_tasks", body, b"Connection: close\r\nExpect: 100-continue\r\n")
    with connected(raw) as connection:
        connection.sendall(sent.replace(b"HTTP/1.1", f"HTTP/{version}".encode())[: -len(body)])
        told = connection.recv(4096) if version == "1.1" else b""
        connection.sendall(body)
        told += read_all(connection)
    statuses = [line.split()[1] for line in told.split(b"\r\n") if line.startswith(b"HTTP/")]
    assert statuses == ([b"100", b"200"] if version == "1.1" else [b"200"])
