"""Something that goes wrong on the way to an answer is answered all the same: nobody waits for ever."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ors.cluster.pages import MergedPages
from ors.cluster.router import Router
from ors.server.http.streams import Sink, Stream
from ors.types import Blocks
from tests.support.environments import Lab
from tests.support.in_process_cluster import ServerThread, linked_servers, minted, routing
from tests.support.raw_http import Raw


class Broken(Stream):
    """An answer from elsewhere that cannot even be asked for."""

    def begin(self, sink: Sink) -> None:
        raise RuntimeError("no frame today")

    def leave(self) -> None: ...


class Cancelling(Lab):
    """Cancels whoever asks for its prompt."""

    async def get_prompt(self) -> Blocks:  # type: ignore[override]
        raise asyncio.CancelledError


def fail(*args: Any) -> Any:
    raise RuntimeError("nothing works today")


async def fail_later(*args: Any) -> Any:
    fail()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[list[ServerThread]]:
    with linked_servers(2, tmp_path, [Lab, Cancelling]) as made:
        yield made


def is_told(raw: Raw, path: str = "/lab/prompt", sid: str = "made-by-the-client") -> None:
    """Every request is answered, each of them on one connection."""
    answer = raw.get(path, sid=sid)
    assert (answer.status, answer.detail) == (500, "Internal Server Error")


def test_a_relay_that_cannot_begin_is_500(pair: list[ServerThread], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Router, "elsewhere", lambda *args: Broken())
    is_told(pair[0].raw)


def test_requests_behind_one_that_failed_do_not_run(
    pair: list[ServerThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    sid = minted(pair, 0, task={"id": "behind-failure"})
    elsewhere = Router.elsewhere

    def first(router: Router, request: Any) -> Any:
        return Broken() if request.path == "/broken" else elsewhere(router, request)

    monkeypatch.setattr(Router, "elsewhere", first)
    connection = pair[0].raw.connection()
    connection.connect()
    body = b'{"name": "echo", "input": {"text": "x"}}'
    call = b"POST /lab/call HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Session-ID: %b\r\nContent-Length: %d\r\n\r\n%b"
    connection.sock.sendall(
        b"GET /broken HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + call % (sid.encode(), len(body), body)
    )
    received = b""
    while part := connection.sock.recv(2**16):
        received += part
    connection.close()
    assert received.startswith(b"HTTP/1.1 500 ")
    assert received.count(b"HTTP/1.1 ") == 1
    assert pair[0].raw.call(sid, "echo", {"text": "y"}).result()["ok"]
    assert Lab.counts["behind-failure.echo"] == 1


def test_a_search_that_fails_is_500(pair: list[ServerThread], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Router, "_find", fail_later)
    is_told(pair[0].raw)


def test_a_search_whose_end_fails_is_500(pair: list[ServerThread], monkeypatch: pytest.MonkeyPatch) -> None:
    async def found(*args: Any) -> Any:
        return Broken()

    monkeypatch.setattr(Router, "_find", found)
    is_told(pair[0].raw)


def test_a_router_that_fails_is_500(pair: list[ServerThread], monkeypatch: pytest.MonkeyPatch) -> None:
    with routing([pair[0].raw.url]) as router:
        monkeypatch.setattr(Router, "elsewhere", fail)
        is_told(router)


def test_a_page_of_a_router_that_fails_is_500(
    pair: list[ServerThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MergedPages, "_metrics", fail_later)
    with routing([pair[0].raw.url]) as router:
        answer = router.get("/-/metrics")
        assert (answer.status, answer.detail) == (500, "Internal Server Error")


def test_an_answer_that_is_cancelled_at_another_server_is_told(pair: list[ServerThread]) -> None:
    sid = minted(pair, 1, "cancelling")
    assert pair[0].raw.get("/cancelling/prompt", sid=sid).status == 500
