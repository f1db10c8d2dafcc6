"""Requests read at one glance are read as the parser reads them, or left to it."""

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ors.server.glance import glance

PLAIN = (
    b"POST /lab/call HTTP/1.1\r\nHost: localhost:8080\r\nX-Session-ID:  a b: c \r\nAccept:*/*\r\n"
    b"Content-Length: 5\r\n\r\nhello"
)


class Parsed:
    """What httptools says of a request."""

    def __init__(self, data: bytes) -> None:
        self.url, self.body, self.whole = b"", b"", 0
        self.headers: dict[bytes, bytes] = {}
        parser = httptools.HttpRequestParser(self)
        parser.feed_data(data)
        self.method = parser.get_method().decode()
        self.keep_alive = parser.should_keep_alive()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value.strip()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.whole += 1


def same(data: bytes) -> None:
    request = glance(data, 10_000, 10_000)
    if request is None:
        return
    parsed = Parsed(data)
    assert parsed.whole == 1
    assert parsed.keep_alive
    assert (request.method, request.path.encode(), request.body) == (parsed.method, parsed.url, parsed.body)
    assert {name: value.strip() for name, value in request.headers.items()} == parsed.headers


def test_a_plain_request_is_read() -> None:
    request = glance(PLAIN, 10_000, 10_000)
    assert request is not None
    assert (request.method, request.path, request.body) == ("POST", "/lab/call", b"hello")
    assert request.headers[b"x-session-id"].strip() == b"a b: c"
    same(PLAIN)
    same(b"GET /health HTTP/1.1\r\n\r\n")
    assert glance(b"GET /health HTTP/1.1\r\nConnection: keep-alive\r\n\r\n", 100, 100) is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"POST", b"PUT"),
        (b"/lab/call", b"/lab/call?x=1"),
        (b"/lab/call", b"/l%61b/call"),
        (b"/lab/call", b"http://host/lab/call"),
        (b"Content-Length: 5", b"Content-Length: 4"),
        (b"Content-Length: 5", b"Content-Length: 6"),
        (b"Content-Length: 5", b"Content-Length: +5"),
        (b"Content-Length: 5", b"Content-Length: 05"),
        (b"Content-Length: 5", b"Content-Length: 5\r\nContent-Length: 5"),
        (b"Content-Length: 5", b"Transfer-Encoding: chunked"),
        (b"Content-Length: 5", b"Content-Length: 5\r\nTransfer-Encoding: chunked"),
        (b"Accept:*/*", b"Connection: close"),
        (b"Accept:*/*", b"Connection: Upgrade\r\nUpgrade: h2c"),
        (b"Accept:*/*", b"Expect: 100-continue"),
        (b"Accept:*/*", b" folded: line"),
        (b"Accept:*/*", b"Accept : */*"),
        (b"Accept:*/*", b"Acc\xe9pt: */*"),
        (b"Accept:*/*", b"Accept: \x00"),
        (b"Accept:*/*\r\n", b"Accept:*/*\n"),
        (b"\r\n\r\n", b"\r\n"),
        (b"hello", b"helloGET / HTTP/1.1\r\n\r\n"),
    ],
)
def test_what_is_unusual_is_left_to_the_parser(old: bytes, new: bytes) -> None:
    assert glance(PLAIN.replace(old, new, 1), 10_000, 10_000) is None


def test_what_is_too_large_is_left_to_the_parser() -> None:
    assert glance(PLAIN, 50, 10_000) is None
    assert glance(PLAIN, 10_000, 4) is None


pieces = st.sampled_from(
    [
        PLAIN[:24],
        b"\r\n",
        b"\n",
        b": ",
        b":",
        b" ",
        b"\t",
        b"Content-Length",
        b"0",
        b"5",
        b"\x00",
        b"\xff",
        b"GET / HTTP/1.1",
    ]
    + [line + b"\r\n" for line in PLAIN.split(b"\r\n")]
)


@given(parts=st.lists(pieces, max_size=12))
def test_whatever_is_read_is_read_as_the_parser_does(parts: list[bytes]) -> None:
    same(b"".join(parts))
    same(PLAIN[:100] + b"".join(parts) + PLAIN[100:])


def test_hostile_headers_cost_no_more_than_their_length() -> None:
    # Would take for ever if the expression could try each line in two ways.
    assert glance(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000 + b"x", 10**6, 10) is None
