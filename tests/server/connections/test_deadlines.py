"""Limits and deadlines of one connection, with a clock and a transport of the test's own."""

import pytest

from ors import Server
from ors.server.connections import connection as wire
from ors.server.connections.context import (
    BODY_SECONDS,
    LAST_READ_SECONDS,
    LEAST_BYTES_A_SECOND,
    REQUEST_SECONDS,
    ConnectionContext,
)
from tests.requirements import proves
from tests.support.environments import Lab
from tests.support.live_server import app_of


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
    connection = wire.Connection(ConnectionContext(app_of(Server([Lab]))), set(), clock)  # type: ignore[arg-type]
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
    assert b"arrives too slowly" in pipe.sent


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


CHUNKED = b"POST /create HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"


@proves("http.limits")
@pytest.mark.parametrize(
    "trailer", [b"X: %b\r\n" % (b"y" * 70_000), b"X: y\r\n" * 12_000], ids=["one", "many"]
)
@pytest.mark.parametrize("first", [10, 30_000, 60_000])
def test_trailers_over_the_limit_are_431_wherever_they_are_cut(
    ends: tuple[wire.Connection, Pipe, Clock], trailer: bytes, first: int
) -> None:
    connection, pipe, _ = ends
    connection.data_received(CHUNKED + trailer[:first])
    connection.data_received(trailer[first:] + b"\r\n")
    assert pipe.sent.startswith(b"HTTP/1.1 431 ")


async def test_the_first_byte_of_a_next_request_is_not_taken_for_a_body() -> None:
    pipe, clock = Pipe(), Clock()
    listener = ConnectionContext(app_of(Server([Lab], api_keys=["secret"])))
    connection = wire.Connection(listener, set(), clock)  # type: ignore[arg-type]
    connection.connection_made(pipe)  # type: ignore[arg-type]
    connection.data_received(b"GET /health HTTP/1.1\r\n\r\nG")  # which needs no key
    connection.data_received(b"ET /health HTTP/1.1\r\n\r\n")
    assert [part[:3] for part in pipe.sent.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200"]
