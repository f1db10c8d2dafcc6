"""Pipelined requests of clients that do not read their answers, or are not known yet."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ors import Limits
from ors.cluster.servers.linked_server import MovableConnection
from ors.errors import AuthenticationError, ORSError
from ors.server.connections.context import ConnectionContext
from ors.server.http.answers import Answer, refusal
from ors.server.http.requests import Request
from ors.server.http.streams import Outcome, Sink, Stream

HIGH, LOW = 1000, 100
LONG = b"x" * (HIGH + 1)


class Held(Stream):
    """An answer that comes when the test says so."""

    sink: Sink
    left = False

    def begin(self, sink: Sink) -> None:
        self.sink = sink

    def leave(self) -> None:
        self.left = True


class App:
    """Answers a request with its path and a long body, or when the test says so."""

    def __init__(self) -> None:
        self.limits = Limits(body_bytes=10_000)
        self.tasks: set[asyncio.Task[None]] = set()
        self.taken: list[str] = []
        self.held = Held()
        self.asking: asyncio.Future[int] | None = None

    def admit(self, request: Request) -> int | Coroutine[Any, Any, int]:
        return self.limits.body_bytes if self.asking is None else self._asked(self.asking)

    async def _asked(self, asking: asyncio.Future[int]) -> int:
        return await asking

    def take(self, request: Request) -> Outcome:
        self.taken.append(request.path)
        return self.held if request.path == "/held" else Answer(200, request.path.encode() + LONG)

    def refused(self, error: ORSError) -> Answer:
        return refusal(error)


class Pipe:
    """A transport with watermarks, whose reader reads when the test says so."""

    def __init__(self) -> None:
        self.protocol: MovableConnection
        self.unread = 0
        self.sent = b""
        self.reading = True
        self.closed = False

    def write(self, data: bytes) -> None:
        before, self.unread = self.unread, self.unread + len(data)
        self.sent += data
        if before <= HIGH < self.unread:
            self.protocol.pause_writing()

    def read(self) -> None:
        before, self.unread = self.unread, 0
        if before > HIGH:
            self.protocol.resume_writing()

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return self.unread

    def get_extra_info(self, name: str) -> None:
        return None


class Client:
    """A connection, the application behind it, and the client's end."""

    def __init__(self) -> None:
        self.app = App()
        self.pipe = Pipe()
        self.listener = ConnectionContext(self.app)
        self.connection = self.pipe.protocol = MovableConnection(self.listener, set())
        self.connection.connection_made(self.pipe)  # type: ignore[arg-type]

    def send(self, *requests: bytes) -> None:
        assert self.pipe.reading
        self.connection.data_received(b"".join(requests))

    async def read(self) -> list[bytes]:
        """Reads all answers; returns each one's status and the path that it begins with."""
        for _ in range(100):
            self.pipe.read()
            await asyncio.sleep(0)
        found = [answer.partition(b"\r\n\r\n") for answer in self.pipe.sent.split(b"HTTP/1.1 ")[1:]]
        return [head[:4] + body.partition(b"x")[0][:10] for head, _, body in found]


@pytest.fixture
async def client() -> Client:
    return Client()


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", *headers, "", ""]).encode()


def post(path: str, body: bytes, *headers: str) -> bytes:
    return get(path, f"Content-Length: {len(body)}", *headers) + body


async def test_requests_of_one_read_wait_while_their_client_does_not_read(client: Client) -> None:
    paths = [f"/{number}" for number in range(50)]
    client.send(*map(get, paths))
    assert client.app.taken == ["/0"]
    assert not client.pipe.reading
    assert await client.read() == [b"200 " + path.encode() for path in paths]
    assert client.app.taken == paths
    client.send(get("/more"))
    assert client.app.taken[-1] == "/more"


async def test_a_refusal_waits_behind_requests_that_wait(client: Client) -> None:
    client.send(get("/0"), get("/1"), get("/2"), b"\0 garbage\r\n\r\n")
    assert [answer[:3] for answer in await client.read()] == [b"200", b"200", b"200", b"400"]
    assert client.app.taken == ["/0", "/1", "/2"]


async def test_a_body_is_asked_for_only_after_the_answers_before_it(client: Client) -> None:
    client.send(get("/0"), get("/1"), get("/2", "Content-Length: 5", "Expect: 100-continue"))
    assert client.pipe.sent.count(b"HTTP/1.1 ") == 1
    assert [answer[:3] for answer in await client.read()] == [b"200", b"200"]
    client.send(b"hello")
    assert (await client.read())[-1] == b"200 /2"


async def test_requests_behind_the_last_one_do_not_run(client: Client) -> None:
    client.send(get("/held"), post("/behind", b"y" * 50))
    assert client.listener.arriving.bytes == 50
    client.connection.shutdown()
    client.app.held.sink.answer(Answer(200, b"held" + LONG))
    assert client.pipe.closed
    assert client.listener.arriving.bytes == 0
    assert await client.read() == [b"200 held"]
    assert client.app.taken == ["/held"]


async def test_a_shutdown_while_requests_wait_for_their_reader_runs_none_of_them(client: Client) -> None:
    client.send(get("/0"), get("/1"))
    client.connection.shutdown()
    assert client.pipe.closed
    assert await client.read() == [b"200 /0"]
    assert client.app.taken == ["/0"]


async def test_bodies_that_wait_are_counted_until_their_turn(client: Client) -> None:
    client.send(get("/held"), post("/1", b"y" * 50), post("/2", b"y" * 70))
    assert client.listener.arriving.bytes == 120
    client.app.held.sink.answer(Answer(200, LONG))
    client.pipe.read()
    assert client.listener.arriving.bytes == 70
    client.connection.connection_lost(None)
    await asyncio.sleep(0)
    assert client.listener.arriving.bytes == 0


async def test_a_connection_with_requests_that_wait_is_not_given_away(client: Client) -> None:
    client.send(get("/0"), get("/1"))
    client.pipe.unread = 0  # all is read, and the event loop has not said so yet
    assert client.connection.spare is None


async def test_nothing_is_read_before_it_is_known_who_sends_it(client: Client) -> None:
    client.app.asking = asyncio.get_running_loop().create_future()
    client.send(get("/0"), post("/1", b"y" * 50)[:-1])
    assert not client.pipe.reading
    await client.read()  # a client that reads its answers is still not known
    assert not client.pipe.reading
    client.app.asking.set_result(10_000)
    await asyncio.gather(*client.app.tasks)
    client.send(b"y")
    assert (await client.read())[-1] == b"200 /1"


async def test_a_sender_that_turns_out_unknown_is_refused(client: Client) -> None:
    client.app.asking = asyncio.get_running_loop().create_future()
    client.send(post("/1", b"y" * 50)[:-1])
    client.app.asking.set_exception(AuthenticationError("no key"))
    await asyncio.gather(*client.app.tasks)
    assert [answer[:3] for answer in await client.read()] == [b"401"]
    assert client.app.taken == []


async def test_a_limit_that_comes_late_is_not_for_the_next_request(client: Client) -> None:
    asking = client.app.asking = asyncio.get_running_loop().create_future()
    whole = post("/1", b"y" * 50, "Expect: 100-continue")
    client.send(whole)
    client.app.asking = None
    asking.set_result(10)
    await asyncio.gather(*client.app.tasks)
    await client.read()
    client.send(post("/2", b"y" * 50))
    assert (await client.read())[-1] == b"200 /2"
