"""Requests and answers as ASGI messages, without a server."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ors import Server
from ors.server.connections.asgi import ASGI, MAX_UNSENT, Message
from ors.server.http.answers import STREAM, Answer
from ors.server.http.requests import Request
from ors.server.http.streams import Later, Outcome, Sink, Stream
from tests.support.environments import Lab
from tests.support.live_server import app_of


async def answered(
    take: Callable[[Request], Outcome] | None = None, headers: dict[bytes, bytes] | None = None
) -> list[Message]:
    """Everything that is sent in answer to a request whose client stays until its end."""
    server = Server([Lab])
    if take is not None:
        app_of(server).take = take  # type: ignore[method-assign,assignment]
    sent: list[Message] = []
    asked = iter([{"type": "http.request", "body": b""}])

    async def receive() -> Message:
        return next(asked, None) or await asyncio.Future[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/health", "headers": (headers or {}).items()}
    await server.app(scope, receive, send)
    await app_of(server).stop()
    return sent


async def test_a_connection_ends_after_a_request_for_another_protocol() -> None:
    # uvicorn reads the body of such a request as a request of its own.
    asked = {b"connection": b"upgrade", b"upgrade": b"h2c"}
    for headers, closed in [(asked, True), ({}, False)]:
        start, body = await answered(headers=headers)
        assert start["status"] == 200
        assert ((b"connection", b"close") in start["headers"]) is closed
        assert body["body"] == b'{"status":"ok"}'


async def test_a_websocket_is_refused() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await Server([Lab]).app({"type": "websocket", "path": "/", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close"}]


class Broken(Stream):
    """Fails as it begins, before or after the head of its answer."""

    def __init__(self, *, headed: bool) -> None:
        self._headed = headed

    def begin(self, sink: Sink) -> None:
        if self._headed:
            sink.head(200, STREAM)
        raise RuntimeError("broken")

    def leave(self) -> None: ...


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize(("headed", "statuses"), [(False, [500]), (True, [200])])
async def test_a_stream_that_fails_as_it_begins_leaves_no_client_waiting(
    headed: bool, statuses: list[int], later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def coming() -> Outcome:
        return Broken(headed=headed)

    def take(request: Request) -> Outcome:
        return Later(request, coming(), set()) if later else Broken(headed=headed)

    async with asyncio.timeout(20):
        sent = await answered(take)
    assert [message["status"] for message in sent if "status" in message] == statuses
    assert sent[-1].get("more_body", False) is False
    assert (sent[-1]["type"] == "http.response.body") is not headed  # a broken answer has no end
    assert "a request was not answered" in caplog.text


class Flood(Stream):
    """Writes as fast as it may."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def begin(self, sink: Sink) -> None:
        self._sink = sink
        sink.head(200, STREAM, b"first")
        while "paused" not in self.seen:
            sink.part(b"more")

    def leave(self) -> None:
        self.seen.append("left")

    def pause(self) -> None:
        self.seen.append("paused")

    def resume(self) -> None:
        self.seen.append("resumed")
        self._sink.end(b"last")


async def test_a_stream_is_paused_until_what_it_wrote_is_sent() -> None:
    flood = Flood()
    sent = await answered(lambda request: flood)
    assert flood.seen == ["paused", "resumed"]
    bodies = [message["body"] for message in sent if message["type"] == "http.response.body"]
    assert bodies == [b"first", *[b"more"] * (MAX_UNSENT - 2), b"last"]


async def test_a_client_that_leaves_is_noticed_by_the_stream() -> None:
    left = asyncio.Event()

    class Endless(Flood):
        def begin(self, sink: Sink) -> None:
            sink.head(200, STREAM)

        def leave(self) -> None:
            left.set()

    server = Server([Lab])
    app_of(server).take = lambda request: Endless()  # type: ignore[method-assign,assignment,misc]
    messages: list[dict[str, Any]] = [{"type": "http.disconnect"}, {"type": "http.request"}]

    async def receive() -> Message:
        return messages.pop()

    async def send(message: Message) -> None: ...

    async with asyncio.timeout(20):
        await ASGI(app_of(server))(
            {"type": "http", "method": "GET", "path": "/", "headers": []}, receive, send
        )
    assert left.is_set()


async def test_an_answer_that_is_complete_needs_no_stream() -> None:
    start, body = await answered(lambda request: Answer(204, b""))
    assert (start["status"], body["body"]) == (204, b"")
