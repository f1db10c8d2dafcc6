"""Frames that no server of ours sends, and requests that fit into none: refused, and nobody is harmed."""

import asyncio
import json
import logging
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from ors import Limits
from ors._protocol.frames import read_request, request_frame
from ors.cluster.pages import _Collected, answer_of
from ors.errors import BadRequest
from ors.server.http.answers import Answer
from ors.server.http.requests import Request
from ors.server.http.streams import Later
from tests.support.environments import Lab
from tests.support.in_process_cluster import ServerThread, linked_servers, minted, routing
from tests.support.raw_http import Raw

REQUEST, FIND = 1, 4
HELLO, LOAD, WHOLE, FOUND = 16, 17, 18, 22
LONG = 70_000


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerThread]]:
    limits = Limits(grace_seconds=0.1)
    with linked_servers(2, tmp_path_factory.mktemp("links"), [Lab], limits=limits) as made:
        yield made


class Speaker:
    """A link, spoken by hand."""

    def __init__(self, raw: Raw) -> None:
        self._socket = socket.create_connection((raw.host, raw.port), 30)
        self._heard = self._socket.makefile("rb")
        self._socket.sendall(
            b"GET /-/link HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: ors-link\r\n\r\n"
        )
        assert self._heard.readline().startswith(b"HTTP/1.1 101")
        while self._heard.readline().strip():
            pass

    def say(self, kind: int, number: int, payload: bytes) -> None:
        self._socket.sendall(struct.pack(">IBI", len(payload), kind, number) + payload)

    def hear(self) -> tuple[int, int, bytes] | None:
        """The next frame but greetings and loads; None at the end."""
        while head := self._heard.read(9):
            length, kind, number = struct.unpack(">IBI", head)
            payload = self._heard.read(length)
            if kind not in (HELLO, LOAD):
                return kind, number, payload
        return None

    def status(self, number: int) -> int:
        """The status of the next answer, which is whole and has that number."""
        told = self.hear()
        assert told is not None
        assert told[:2] == (WHOLE, number)
        return int(struct.unpack_from(">H", told[2])[0])

    def close(self) -> None:
        self._heard.close()
        self._socket.close()


def asked(method: bytes, path: bytes, query: bytes = b"", headers: bytes = b"", body: bytes = b"") -> bytes:
    """What a frame says of a request, right or wrong."""
    lengths = struct.pack(">BHHI", len(method), len(path), len(query), len(headers))
    return lengths + method + path + query + headers + body


IMPOSSIBLE = {
    "a path that is not UTF-8": asked(b"GET", b"/lab/\xff\xfe"),
    "a path that is half of a surrogate": asked(b"GET", b"/lab/\xed\xa0\x80"),
    "a path without a slash": asked(b"GET", b"lab/tools"),
    "no path": asked(b"GET", b""),
    "no method": asked(b"", b"/health"),
    "a method that is not UTF-8": asked(b"\xff", b"/health"),
    "a method of two lines": asked(b"GET\r\nX: y", b"/health"),
    "a query of two lines": asked(b"GET", b"/nowhere", b"a=b\r\nx: y"),
}


@pytest.mark.parametrize("payload", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_what_cannot_be_a_request_is_refused_on_a_link_that_goes_on(
    pair: list[ServerThread], caplog: pytest.LogCaptureFixture, payload: bytes
) -> None:
    with closing(Speaker(pair[0].raw)) as link, caplog.at_level(logging.INFO):
        link.say(REQUEST, 7, payload)
        assert link.status(7) == 400
        link.say(REQUEST, 8, asked(b"GET", b"/health"))
        assert link.status(8) == 200
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


BROKEN = {
    "shorter than its lengths": [(REQUEST, 1, b"\x03")],
    "shorter than what they say": [(REQUEST, 1, struct.pack(">BHHI", 3, 9, 0, 500) + b"GET/list")],
    "a header without a value": [(REQUEST, 1, asked(b"GET", b"/health", b"", b"host"))],
    "a number that is in use": [(REQUEST, 1, asked(b"GET", b"/-/api/live"))] * 2,
    "an id that is not UTF-8": [(FIND, 1, b"\xff")],
}


@pytest.mark.parametrize("said", BROKEN.values(), ids=BROKEN.keys())
def test_a_link_on_which_something_else_is_spoken_is_closed(
    pair: list[ServerThread], caplog: pytest.LogCaptureFixture, said: list[tuple[int, int, bytes]]
) -> None:
    with closing(Speaker(pair[0].raw)) as link, caplog.at_level(logging.INFO):
        for each in said:
            link.say(*each)
        try:
            while link.hear() is not None:
                pass
        except ConnectionResetError:
            pass
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert pair[0].raw.get("/health").status == 200


@pytest.mark.parametrize(
    ("path", "query"), [("/" + "x" * LONG, b""), ("/health", b"x" * LONG), ("/\udc80", b"")]
)
def test_what_fits_into_no_frame_is_refused(pair: list[ServerThread], path: str, query: bytes) -> None:
    request = Request("GET", path, query, {}, b"")
    with pytest.raises(BadRequest):
        request_frame(1, ("GET", path, query, {}, b""))
    (peer,) = pair[0].server.peers
    loop = pair[0].server.loop
    assert asyncio.run_coroutine_threadsafe(answer_of(peer, request), loop).result(20).status == 400


def test_what_just_fits_into_a_frame_arrives_whole() -> None:
    sent = ("M-SEARCH", "/é" + "x" * (0xFFFF - 3), b"y" * 0xFFFF, {b"a": b"b"}, b"body")
    assert read_request(request_frame(1, sent)[9:]) == sent


@pytest.mark.parametrize("target", [f"/{'x' * LONG}", f"/lab/prompt?{'x' * LONG}", f"/{'%ff' * 12_000}"])
def test_a_long_target_is_answered_by_every_server(pair: list[ServerThread], target: str) -> None:
    sid = minted(pair, 1)
    with routing([one.raw.url for one in pair]) as router:
        for raw in (*(one.raw for one in pair), router):
            assert raw.get(target, sid=sid).status < 500


def test_a_path_that_is_long_once_it_is_quoted_harms_no_link(pair: list[ServerThread]) -> None:
    with closing(Speaker(pair[0].raw)) as link:
        link.say(REQUEST, 7, asked(b"GET", b"/" + "é".encode() * 20_000))
        assert link.status(7) == 404


def test_a_fault_of_ours_while_forwarding_is_answered(
    pair: list[ServerThread], caplog: pytest.LogCaptureFixture
) -> None:
    (peer,) = pair[0].server.peers
    loop = pair[0].server.loop
    faulty = Request("GET", "/health", b"", None, b"")  # type: ignore[arg-type]
    assert asyncio.run_coroutine_threadsafe(answer_of(peer, faulty), loop).result(20).status == 500
    assert "was not forwarded" in caplog.text


async def test_a_fault_of_ours_while_looking_for_a_server_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> Answer:
        raise RuntimeError("oh")

    sink = _Collected()
    Later(Request("GET", "/-/api/live", b"", {}, b""), fail(), set()).begin(sink)
    assert (await asyncio.wait_for(sink.whole_answer, 20)).status == 500
    assert "GET /-/api/live failed" in caplog.text


class _Lying(socketserver.StreamRequestHandler):
    """A server that says hello and then answers everything with nonsense."""

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        hello = {"slot": 0, "incarnation": 1, "environments": ["lab"], "body_bytes": 1000}
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        self._say(HELLO, 0, json.dumps(hello).encode())
        self._say(LOAD, 0, b"[0,true]")
        while head := self.rfile.read(9):
            length, _, number = struct.unpack(">IBI", head)
            self.rfile.read(length)
            self._say(WHOLE, number, struct.pack(">HH", 200, 0) + b"nonsense")

    def _say(self, kind: int, number: int, payload: bytes) -> None:
        self.wfile.write(struct.pack(">IBI", len(payload), kind, number) + payload)


def test_a_server_that_answers_nonsense_leaves_no_client_of_a_router_without_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Lying) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            with routing([f"http://127.0.0.1:{server.server_address[1]}"]) as router:
                assert router.get("/-/sessions").status == 500
                assert "GET /-/sessions failed" in caplog.text
        finally:
            server.shutdown()


@pytest.mark.parametrize("name", ["offset", "limit"])
@pytest.mark.parametrize("path", ["/-/sessions", "/-/api/live"])
def test_a_number_of_thousands_of_digits_is_refused_by_every_server(
    pair: list[ServerThread], path: str, name: str
) -> None:
    with routing([one.raw.url for one in pair]) as router:
        for raw in (*(one.raw for one in pair), router):
            for number in ("9" * 5000, "9" * 20, "-1", "x", "%D9%A3", "1_0"):
                answer = raw.get(f"{path}?{name}={number}")
                assert answer.status == 400
                assert answer.detail.startswith(f"{name}: ")
