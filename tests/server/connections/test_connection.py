"""What a connection bears: odd requests, hostile ones, and readers that stop."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from uvicorn.server import ServerState

from ors import Limits, Server
from ors.server.connections import connection as wire
from ors.server.connections.body_limits import BODY_SECONDS, LEAST_BYTES_A_SECOND
from ors.server.connections.listener import LAST_READ_SECONDS, REQUEST_SECONDS, Listener
from ors.server.connections.parser import MOST_WISHES
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
    assert received.count(b"HTTP/1.1 200") <= MOST_WISHES
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


class Clock:
    """As much of an event loop as a connection asks for while nothing is answered."""

    now = 0.0

    def time(self) -> float:
        return self.now


class Pipe:
    """A transport whose reader takes as much as the test says."""

    def __init__(self) -> None:
        self.unread = 0
        self.sent = b""
        self.end = ""

    def is_closing(self) -> bool:
        return bool(self.end)

    def get_write_buffer_size(self) -> int:
        return self.unread

    def write(self, data: bytes) -> None:
        self.unread += len(data)
        self.sent += data

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self.end = "closed"

    def abort(self) -> None:
        self.end = "aborted"


@pytest.fixture
def ends() -> tuple[wire.Connection, Pipe, Clock]:
    clock, pipe = Clock(), Pipe()
    port = Listener(Server([Lab])._app)
    connection = wire.Connection(port, None, ServerState(), {}, _loop=clock)  # type: ignore[arg-type]
    connection.connection_made(pipe)  # type: ignore[arg-type]
    return connection, pipe, clock


def pass_time(connection: wire.Connection, clock: Clock, seconds: float) -> None:
    clock.now += seconds
    connection.sweep(clock.now)


def test_a_reader_that_stops_is_cut_off(ends: tuple[wire.Connection, Pipe, Clock]) -> None:
    connection, pipe, clock = ends
    pipe.unread = 100
    pass_time(connection, clock, 1)
    pass_time(connection, clock, REQUEST_SECONDS)
    assert pipe.end == ""
    connection.data_received(b"GET ")  # it still sends, but that is no reading
    pass_time(connection, clock, 1)
    assert pipe.end == "aborted"


def test_a_reader_that_is_slow_is_not_cut_off(ends: tuple[wire.Connection, Pipe, Clock]) -> None:
    connection, pipe, clock = ends
    pipe.unread = 100_000
    for _ in range(100):
        pipe.unread -= 1
        pass_time(connection, clock, REQUEST_SECONDS - 1)
    assert pipe.end == ""


def test_a_connection_that_was_closed_upon_a_stopped_reader_is_cut_off(
    ends: tuple[wire.Connection, Pipe, Clock],
) -> None:
    connection, pipe, clock = ends
    connection.data_received(b"nonsense\r\n\r\n")
    assert pipe.unread
    pass_time(connection, clock, 1)
    pass_time(connection, clock, LAST_READ_SECONDS + 1)
    assert pipe.end == "closed"
    pass_time(connection, clock, REQUEST_SECONDS + 1)
    assert pipe.end == "aborted"


def test_headers_that_drip_have_one_deadline(ends: tuple[wire.Connection, Pipe, Clock]) -> None:
    connection, pipe, clock = ends
    connection.data_received(b"GET /health HTTP/1.1\r\n")
    for _ in range(int(REQUEST_SECONDS)):
        assert pipe.end == ""
        connection.data_received(b"X-Drip: drop\r\n")
        pass_time(connection, clock, 1.01)
    assert pipe.end == "closed"


def test_line_breaks_that_drip_before_a_request_have_the_same_deadline(
    ends: tuple[wire.Connection, Pipe, Clock],
) -> None:
    connection, pipe, clock = ends
    for _ in range(int(REQUEST_SECONDS)):
        assert pipe.end == ""
        connection.data_received(b"\r\n")
        pass_time(connection, clock, 1.01)
    assert pipe.end == "closed"


def test_a_long_body_may_take_its_time(ends: tuple[wire.Connection, Pipe, Clock]) -> None:
    connection, pipe, clock = ends
    connection.data_received(b"POST /create HTTP/1.1\r\nContent-Length: 30000000\r\n\r\n")
    for _ in range(100):
        connection.data_received(b"x" * 200_000)
        pass_time(connection, clock, 200_000 / LEAST_BYTES_A_SECOND)
    assert (pipe.end, pipe.sent) == ("", b"")
    pass_time(connection, clock, BODY_SECONDS + 1)
    assert pipe.sent.startswith(b"HTTP/1.1 408 ")


DRIPPING = {
    "body": (b"Content-Length: 500\r\n\r\n", b"x"),
    "chunks": (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "trailers": (b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n", b"X: y\r\n"),
}


@proves("http.limits")
@pytest.mark.parametrize(("begin", "drop"), DRIPPING.values(), ids=DRIPPING)
def test_a_body_that_drips_is_408(
    ends: tuple[wire.Connection, Pipe, Clock], begin: bytes, drop: bytes
) -> None:
    connection, pipe, clock = ends
    connection.data_received(b"POST /create HTTP/1.1\r\n" + begin)
    for _ in range(3):
        connection.data_received(drop)
        pass_time(connection, clock, BODY_SECONDS / 2)
    assert pipe.sent.startswith(b"HTTP/1.1 408 ")
    assert b"ors-reason: limit" in pipe.sent
    assert b"comes too slowly" in pipe.sent


def test_headers_over_the_limit_are_431_also_if_they_come_at_once(
    ends: tuple[wire.Connection, Pipe, Clock],
) -> None:
    connection, pipe, _ = ends
    connection.data_received(b"GET /health HTTP/1.1\r\n" + b"X-More: y\r\n" * 6000 + b"\r\n")
    assert pipe.sent.startswith(b"HTTP/1.1 431 ")


def test_whoever_is_refused_and_stays_is_cut_off(ends: tuple[wire.Connection, Pipe, Clock]) -> None:
    connection, pipe, clock = ends
    connection.data_received(b"\0 garbage\r\n\r\n")
    assert pipe.unread
    pipe.unread = 0
    pass_time(connection, clock, 1)
    for _ in range(4):
        connection.data_received(b"x" * 1000)
        assert not pipe.end
        pass_time(connection, clock, LAST_READ_SECONDS / 4)
    pass_time(connection, clock, 1)
    assert pipe.end == "closed"
