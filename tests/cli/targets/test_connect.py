"""Commands that meet a server which is none of ours: one line says so."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from ors.cli.errors import Unreachable
from ors.cli.targets import connect
from ors.client import Options
from tests.support.commands import run

pytestmark = pytest.mark.long


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A server that answers everything with the same."""

    class Same(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *words: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Same) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, b"nobody", "does not answer as an ORS server: nobody"),
        (404, b"<!DOCTYPE HTML>\n<html>\n<p>Not here", "as an ORS server: the server answered 404\n"),
        (200, b'{"name": "x"}', "an ORS server: the server's answer is not a list of environments"),
        (200, b"<html>", "does not answer as an ORS server: the server's answer is not JSON"),
    ],
)
@pytest.mark.parametrize("command", ["list", "prompt", "bench", "test"])
def test_a_stranger_is_told_from_a_server(command: str, status: int, body: bytes, said: str) -> None:
    with answering(status, body) as url:
        done = run(command, url)
    assert (done.code, done.out) == (3, "")
    assert said in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("command", ["prompt", "bench", "test"])
def test_a_server_without_environments_has_nothing_to_try(command: str) -> None:
    with answering(200, b"[]") as url:
        done = run(command, url)
    assert (done.code, done.out) == (3, "")
    assert "server has no environments" in done.err


def test_who_never_answers_is_not_waited_for_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "HASTE", Options(retries=0, request_seconds=0.2))
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(Unreachable, match="does not answer"):
        connect.greet(f"http://127.0.0.1:{mute.getsockname()[1]}")
