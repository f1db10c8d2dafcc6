"""The measuring instruments measure: what the speed claims rest on is itself checked."""

import os
import re
import shutil
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from bench import floor, load, machine, plans, profile, rollouts, starts, wire
from bench.figures import Figures
from bench.rows import ROWS
from bench.servers import Subject, running

MOST_FUNCTIONS_A_CALL = 109
"""What a call to an async tool may run through on the server, of Python and C; `test_walk` has the rest."""

pytestmark = pytest.mark.untraced  # a tracer adds functions and takes time

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

PIECES = {
    "/length": [b"HTTP/1.1 200 OK\r\nContent-Length: 2", b"1\r\n\r\nevent: end\n", b"data: {}\n\n"],
    "/chunked": [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nevent: ",
        b"\r\n0f\r",
        b"\nend\ndata: {}\n\n1\r\n0\r",
        b"\n\r\n",
    ],
    "/endless": [b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nevent: task"],
    "/error": [b"HTTP/1.1 500 Oh\r\nContent-Length: 10\r\n\r\nevent: end"],
}


@dataclass
class Scripted:
    """A server in this process that sends fixed bytes."""

    port: int
    subject: Subject = "ours"

    @property
    def pid(self) -> int:
        return os.getpid()


class _Answering(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.connection.setsockopt(6, 1, 1)  # TCP_NODELAY: each piece leaves on its own
        while request := self.rfile.readline():
            while self.rfile.readline().strip():
                pass
            for piece in PIECES[request.split()[1].decode()]:
                self.wfile.write(piece)


@contextmanager
def _scripted() -> Iterator[Scripted]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Answering) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield Scripted(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


def _asking(path: str, expected: str = "") -> plans.Plan:
    return (plans.Step("loop", "GET", path, expected=expected, ends=True),)


@needs_compiler
def test_answers_with_a_length_are_read_whole() -> None:
    with _scripted() as server:
        sample = load.run(server, _asking("/length", "data: {}"), 2, count=20)
    assert (sample.passes, sample.errors, sample.bytes) == (20, 0, 20 * 21)


@needs_compiler
def test_chunked_answers_are_joined_wherever_they_are_cut() -> None:
    with _scripted() as server:
        sample = load.run(server, _asking("/chunked", "data: {}"), 2, count=20)
    assert (sample.passes, sample.errors, sample.bytes) == (20, 0, 20 * 22)


@needs_compiler
@pytest.mark.parametrize(
    ("path", "expected", "complaint"),
    [
        ("/error", "", "wrong status .status 500"),
        ("/length", "else", "the expected text is missing"),
        ("/endless", "", "no end event"),
    ],
)
def test_a_wrong_answer_is_told(path: str, expected: str, complaint: str) -> None:
    with _scripted() as server, pytest.raises(load.WrongAnswer, match=complaint):
        load.run(server, _asking(path, expected), 1, count=3)


@needs_compiler
def test_our_server_and_the_floor_answer_the_same_plan() -> None:
    machine.allow_many_files()
    with running("ours", "floor") as servers:
        for server in servers:
            assert load.run(server, plans.calls(plans.SUBMIT), 4, count=40).passes == 40
            assert load.run(server, plans.episodes(), 2, count=4).calls == 4 * 5
        with pytest.raises(load.WrongAnswer, match="the expected text is missing"):
            load.run(servers[0], plans.calls(replace(plans.SUBMIT, expected="Nobody answered.")), 1, count=1)


def test_the_floor_gives_the_bytes_of_our_server() -> None:
    async def answers() -> list[bytes]:
        found = []
        for server in (await wire.ours(1), await floor.on_wires(1)):
            create_session, create, prompt = plans.OPEN
            sid = wire.session_id(await server.ask(create_session, ""))
            await server.ask(create, sid)
            await server.ask(prompt, sid)
            found.append(await server.ask(plans.SUBMIT.canned(), sid))
        return found

    ours, theirs = (sorted(_without_id(answer).split(b"\r\n")) for answer in wire.run(answers))
    assert ours == theirs


def _without_id(answer: bytes) -> bytes:
    return re.sub(rb"data: [0-9a-f-]{32,}|(?i:date: [^\r]*)", b"", answer)


def test_the_hot_path_did_not_grow() -> None:
    assert profile.function_calls() < MOST_FUNCTIONS_A_CALL


async def test_rollouts_and_the_bare_client_play_the_same_episodes() -> None:
    with running("ours") as (server,):
        found = await rollouts.compare(server.url, rounds=1, episodes=4)
    assert {name: len(each) for name, each in found.items()} == {"bare": 1, "driven": 1}


def test_ratios_are_taken_within_a_round() -> None:
    figures = Figures()
    for ours, theirs in ((10.0, 1.0), (40.0, 2.0), (90.0, 3.0)):
        figures.add("calls_32", "ours", ours)
        figures.add("calls_32", "reference", theirs)
    row = next(row for row in ROWS if row.key == "calls_32")
    ratio = figures.ratio(row, "reference")
    assert ratio is not None
    assert (ratio.low, ratio.middle, ratio.high) == (10, 20, 30)
    assert figures.misses(row) == ["20.00 of the reference, meant to be 55"]


def test_imports_help_and_start_are_timed_round_by_round() -> None:
    figures = Figures()
    starts.measure(figures, rounds=2, subjects=("ours",))
    timed = figures.as_json()
    assert set(timed) == {*starts.COMMANDS, "startup"} <= {row.key for row in ROWS}
    assert {row: len(values["ours"]) for row, values in timed.items()} == dict.fromkeys(timed, 2)
