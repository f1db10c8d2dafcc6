"""How much a server takes in at once: bytes of bodies, connections, open files."""

import http.client
import logging
import os
import re
import select
import selectors
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import cast

import pytest

from ors import Server
from ors.server.connections.clients import MAX_OVERFLOW, ConnectionLimit
from tests.support.environments import Lab
from tests.support.live_server import hosted, serving
from tests.support.raw_http import Raw
from tests.support.waiting import wait_until

HOST = b"Host: 127.0.0.1\r\n"
GET = b"GET %b HTTP/1.1\r\n" + HOST + b"\r\n"


def post(path: str, body: bytes, size: int, more: bytes = b"") -> bytes:
    """A request of which so many bytes are the body."""
    return b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n%b\r\n%b" % (path.encode(), HOST, size, more, body)


@contextmanager
def connected(raw: Raw, count: int = 1) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection((raw.host, raw.port), 20)) for _ in range(count)]


def told(connection: socket.socket) -> bytes:
    """Reads the next answer, up to the end of its headers."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(2**16)
        assert part, "the connection ended without an answer"
        received += part
    return received


@pytest.mark.parametrize("host", [serving, hosted], ids=["server", "asgi"])
def test_bodies_that_are_arriving_are_bounded_over_all_connections(
    host: Callable[[Server], AbstractContextManager[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ors.server.connections.context.ARRIVING_BYTES", 1_000_000)
    server = Server([Lab])
    with host(server) as url, connected(Raw(url), 4) as connections:
        for connection in connections:
            connection.sendall(post("/lab/num_tasks", b"x" * 300_000, 900_000))
        (refused,), _, _ = select.select(connections, [], [], 20)
        answer = told(refused)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"ors-reason: limit" in answer
        assert b"retry-after: 1" in answer
        for connection in connections:
            connection.close()
        body = b'{"split": "train", "more": "%b"}' % (b"x" * 900_000)
        wait_until(lambda: Raw(url).post("/lab/num_tasks", body).status == 200)


def test_bodies_that_wait_for_their_turn_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ors.server.connections.context.ARRIVING_BYTES", 1_000_000)
    Lab.gates["ahead.hold"].clear()
    with serving(Server([Lab])) as url:
        raw = Raw(url)
        sid = raw.session(task={"id": "ahead"})
        call = b'{"name": "hold", "input": {}}'
        body = b'{"split": "train", "more": "%b"}' % (b"x" * 600_000)
        with connected(raw, 2) as (first, second):
            first.sendall(post("/lab/call", call, len(call), f"X-Session-ID: {sid}\r\n".encode()))
            assert Lab.gates["ahead.held"].wait(20)
            first.sendall(post("/lab/num_tasks", body, len(body)))
            # As long as the first one's has not come, the second one's has its place.
            wait_until(lambda: raw.post("/lab/num_tasks", body).status == 503)
            Lab.gates["ahead.hold"].set()
            second.sendall(GET % b"/health")
            assert told(second).startswith(b"HTTP/1.1 200 ")
            wait_until(lambda: raw.post("/lab/num_tasks", body).status == 200)


def test_one_connection_too_many_is_told_so_and_health_is_told_all_the_same(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ors.server.connections.clients.CONNECTIONS", 3)
    with serving(Server([Lab])) as url:
        raw = Raw(url)
        with ExitStack() as stack:
            first = []
            for _ in range(3):  # one after the other: while one opens, it counts twice for a moment
                (connection,) = stack.enter_context(connected(raw))
                connection.sendall(GET % b"/list_environments")
                assert told(connection).startswith(b"HTTP/1.1 200 ")
                first.append(connection)
            for _ in range(3):
                answer = raw.get("/list_environments")
                assert (answer.status, answer.headers["ors-reason"]) == (503, "limit")
                assert (answer.headers["retry-after"], answer.headers["connection"]) == ("1", "close")
                assert "connection limit" in answer.detail
            for path in ("/health", "/health/", "/-/health/live", "/-/health/ready"):
                assert raw.get(path).status == 200
            first[0].sendall(GET % b"/list_environments")
            assert told(first[0]).startswith(b"HTTP/1.1 200 ")
        wait_until(lambda: raw.get("/list_environments").status == 200)
        counted = re.search(rb'rejected_total{reason="limit"} (\d+)', raw.get("/-/metrics").body)
        assert counted is not None
        assert int(counted[1]) >= 3
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "at most 3 connections" in caplog.text


def test_health_is_told_however_many_files_tools_have_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ors.server.connections.clients._most_files", lambda: 64)
    with ExitStack() as tools, serving(Server([Lab])) as url:
        for _ in range(64):
            tools.enter_context(open(os.devnull, "rb"))
        raw = Raw(url)
        assert raw.get("/list_environments").status == 503
        assert raw.get("/health").status == 200


@pytest.fixture
def no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection is one too many."""
    monkeypatch.setattr("ors.server.connections.clients.CONNECTIONS", 0)


def test_many_connections_too_many_are_refused_at_once(no_connections: None) -> None:
    with serving(Server([Lab])) as url, connected(Raw(url), MAX_OVERFLOW + 5) as all:
        ready: set[socket.socket] = set()
        while len(ready) < 5:
            ready |= set(select.select(set(all) - ready, [], [], 20)[0])
        for connection in ready:
            assert told(connection).startswith(b"HTTP/1.1 503 ")
        for connection in set(all) - ready:
            connection.sendall(GET % b"/list_environments")
            assert told(connection).startswith(b"HTTP/1.1 503 ")


BEHIND = {
    "part of a request": post("/create", b"{", 1000),
    "a request": GET % b"/health",
    "a wish": GET[:-2] % b"/" + b"Upgrade: x\r\nConnection: upgrade\r\n\r\n",
}


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND)
def test_nothing_behind_the_last_answer_is_read(
    caplog: pytest.LogCaptureFixture, behind: bytes, no_connections: None
) -> None:
    with serving(Server([Lab])) as url, connected(Raw(url)) as (one,):
        one.sendall(GET % b"/health" + behind)
        received = b""
        while part := one.recv(2**16):
            received += part
        assert received.count(b"HTTP/1.1 ") == 1
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_no_body_is_taken_from_one_connection_too_many(no_connections: None) -> None:
    with serving(Server([Lab])) as url, connected(Raw(url)) as (one,):
        one.sendall(post("/create", b"{", 1000))
        assert told(one).startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize(
    ("connections", "files", "most"),
    [(10, None, 10), (10, 2**20, 10), (10_000, 1024, 768), (10_000, 256, 128), (10_000, 64, 32)],
)
def test_a_reserve_of_files_is_kept_for_tools(connections: int, files: int | None, most: int) -> None:
    room = ConnectionLimit(connections, files)
    assert room.has_room(most - 1, most - 1)
    assert not room.has_room(most, most)


SERVER = textwrap.dedent(
    """
    import logging, os, resource, subprocess, sys
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    sys.path.insert(0, {root!r})
    from ors import Server, ToolOutput, tool
    from tests.support.environments import Lab, said
    class Opener(Lab):
        @tool
        def open(self) -> ToolOutput:
            '''Opens files, and starts a process.'''
            files = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
            subprocess.run(["true"], check=True, capture_output=True)
            for file in files:
                os.close(file)
            return said("opened")
    logging.basicConfig()
    Server([Opener]).runner(port=0, on_start=lambda url: print(url, flush=True)).run()
    """
)


def test_a_crowd_of_clients_leaves_files_for_tools() -> None:
    root = str(Path(__file__).parents[3])
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER.format(root=root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        raw = Raw(server.stdout.readline().strip())
        sid = raw.session("opener")
        kept = raw.connection()
        outcomes = [_opened(kept, sid)]
        with ExitStack() as stack:
            crowd = stack.enter_context(selectors.DefaultSelector())
            for _ in range(1000):
                one = stack.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex((raw.host, raw.port))
                crowd.register(one, selectors.EVENT_READ)
            refused: set[socket.socket] = set()
            while len(refused) < 1000 - 256:
                outcomes.append(_opened(kept, sid))
                for key, _ in crowd.select(0):
                    refused.add(cast("socket.socket", key.fileobj))
                    crowd.unregister(key.fileobj)
            outcomes += [_opened(kept, sid) for _ in range(20)]
            answers = [one.recv(2**16) for one in refused]
        kept.close()
    finally:
        server.terminate()
        _, errors = server.communicate(timeout=30)
    assert set(outcomes) == {"opened"}
    assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in answers)
    assert errors.count("WARNING") == errors.count("refusing connections") == 1
    assert "Too many open files" not in errors


def _opened(connection: http.client.HTTPConnection, sid: str) -> str:
    connection.request("POST", "/opener/call", '{"name": "open", "input": {}}', {"X-Session-ID": sid})
    body = connection.getresponse().read().decode()
    return "opened" if '"text":"opened"' in body else body
