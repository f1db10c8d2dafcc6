"""`ors inspect`: a page of this machine for servers that have none."""

import json
import socketserver
import threading
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from ors import Server
from tests.support.cli_environments import Park
from tests.support.commands import Running, run, running
from tests.support.feeds import following
from tests.support.live_server import serving
from tests.support.raw_http import Answer, Raw

pytestmark = pytest.mark.long

WHERE = r"on (http://127\.0\.0\.1:\d+)/-/\?token=([\w-]{40,})"


class Own(Raw):
    """Requests as the page of that command sends them."""

    def __init__(self, command: Running) -> None:
        said = command.line(WHERE)
        super().__init__(said[1])
        self.token = {"ORS-Inspect-Token": said[2]}

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Answer:
        return super().__call__(method, path, body, headers={**self.token, **(headers or {})}, **more)


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    """A server that has no inspector of its own, and asks for a key."""
    with serving(Server([Park], api_keys=["s3cret"], inspector=False)) as url:
        yield url


def test_the_page_comes_from_here_and_all_else_from_there(plain: str) -> None:
    with running("inspect", plain, env={"ORS_API_KEY": "s3cret"}) as command:
        raw = Own(command)
        assert b"ORS inspector" in raw.get("/-/").body
        about = raw.get("/-/api/about").json()
        assert (about["server"], about["live"]) == (plain, False)
        assert raw.get("/list_environments").json() == ["park"]
        sid = raw.session("park", {"n": 1})
        assert raw.get("/park/prompt", sid=sid).status == 200
        answer = raw.call(sid, "nothing-like-it", env="park")
        assert answer.result()["reason"] == "not_found"
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert raw.post("/delete", sid=sid).status == 200
        assert command.stop().code == 0


def test_foreign_pages_cannot_use_its_key(plain: str) -> None:
    with running("inspect", plain, "--api-key", "s3cret") as command:
        raw = Own(command)
        assert raw.get("/list_environments", headers={"Origin": "https://evil.example"}).status == 403
        assert raw.get("/list_environments", headers={"Host": "evil.example"}).status == 403


def test_no_other_process_of_the_machine_can_use_its_key(plain: str) -> None:
    with running("inspect", plain, "--api-key", "s3cret") as command:
        own = Own(command)
        sid = own.session("park", {"n": 1})
        raw = Raw(own.url)
        foreign = [{}, {"ORS-Inspect-Token": ""}, {"ORS-Inspect-Token": "guess"}, {"X-API-Key": "s3cret"}]
        for headers in foreign:
            for method, path in (
                ("GET", "/list_environments"),
                ("GET", "/health"),
                ("GET", "/-/api/about"),
                ("GET", "/-/api/live"),
                ("GET", "/-/sessions"),
                ("HEAD", "/list_environments"),
                ("OPTIONS", "/park/call"),
                ("POST", "/park/tasks"),
                ("POST", "/park/call"),
                ("DELETE", f"/-/sessions/{sid}"),
                ("GET", "/-/page/../../list_environments"),
            ):
                answer = raw(method, path, b"{}" if method == "POST" else None, sid=sid, headers=headers)
                assert answer.status == 403, (method, path)
                assert method == "HEAD" or "open the address that `ors inspect` printed" in answer.detail
        for path in ("/-/", "/-/page/app.js", "/-/page/api/server.js"):  # the page tells nobody what it needs
            answer = raw.get(path)
            assert answer.status == 200
            assert own.token["ORS-Inspect-Token"].encode() not in answer.body
        assert own.post("/ping", sid=sid).status == 200


def test_streams_are_for_its_own_page_too() -> None:
    with (
        serving(Server([Park], api_keys=["s3cret"], inspector=True)) as url,
        running("inspect", url, "--api-key", "s3cret") as command,
    ):
        own = Own(command)
        assert Raw(own.url).get("/-/api/live", headers={"Accept": "text/event-stream"}).status == 403
        with following(own, "/-/api/live", **own.token) as feed:
            assert feed.next("sessions")["total"] == 0
        sid = own.session("park", {"n": 1})
        assert Raw(own.url).get(f"/-/api/calls/{sid}").status == 403
        with following(own, f"/-/api/calls/{sid}", **own.token) as feed:
            assert feed.next("session")["sid"] == sid


def test_the_token_goes_no_further() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), _Listening) as there:
        thread = threading.Thread(target=there.handle_request)
        thread.start()
        with running("inspect", f"http://127.0.0.1:{there.server_address[1]}") as command:
            own = Own(command)
            assert own.get("/health").body == b"heard"
        thread.join(20)
    assert b"GET /health" in _Listening.heard[0]
    assert own.token["ORS-Inspect-Token"].encode() not in _Listening.heard[0]


class _Listening(socketserver.StreamRequestHandler):
    """A server that remembers what it was asked."""

    heard: ClassVar[list[bytes]] = []

    def handle(self) -> None:
        self.heard.append(self.request.recv(65536))
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nheard")


def test_a_server_that_is_away_is_told(plain: str) -> None:
    with running("inspect", "http://127.0.0.1:1") as command:
        answer = Own(command).get("/-/api/about")
        assert answer.status == 502
        assert "http://127.0.0.1:1 does not answer" in answer.detail


def test_code_is_looked_at_without_a_server(park: str) -> None:
    with running("inspect", park) as command:
        raw = Own(command)
        assert raw.get("/-/api/about").json()["live"] is True
        assert json.loads(raw.get("/-/api/environments").body)[0]["name"] == "park"


def test_what_is_no_server_is_told() -> None:
    assert run("inspect", "http://").code == 2


def test_a_target_shows_the_line_of_its_author_that_raised(park: str) -> None:
    with running("inspect", park) as command:
        raw = Own(command)
        error = raw.call(raw.session("park", {"n": 1}), "fail", env="park").error()
    assert error.endswith('in fail\n    raise RuntimeError("it broke")')
