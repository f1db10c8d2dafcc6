"""Pipelined requests of clients that do not read their answers, or are not known yet."""

import asyncio

import pytest

from ors.errors import AuthenticationError
from ors.server.http.answers import Answer
from tests.support.piped_connection import LONG, Client, get, post


@pytest.fixture
async def client() -> Client:
    return Client()


async def test_requests_of_one_read_wait_while_their_client_does_not_read(client: Client) -> None:
    paths = [f"/{number}" for number in range(50)]
    client.send(*map(get, paths))
    assert client.app.taken == ["/0"]
    assert not client.pipe.reading
    assert await client.read() == [b"200 " + path.encode() for path in paths]
    assert client.app.taken == paths
    client.send(get("/more"))
    assert client.app.taken[-1] == "/more"


async def test_answers_keep_their_order_when_their_client_turns_out_slow() -> None:
    client = Client(late=True)  # the pause comes after the next request was chosen, and before it is answered
    client.send(get("/held"), get("/1"), get("/2"), get("/3"))
    client.answer(Answer(200, b"/held" + LONG))
    await asyncio.sleep(0)
    assert client.app.taken == ["/held"]
    assert await client.read() == [b"200 /held", b"200 /1", b"200 /2", b"200 /3"]


async def test_bodies_in_parts_are_not_mixed(client: Client) -> None:
    chunked = get("/short", "Transfer-Encoding: chunked")
    client.send(
        chunked + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", chunked + b"1\r\nd\r\n0\r\n\r\n", post("/short", b"e")
    )
    client.send(post("/short", b"fgh")[:-1])
    client.send(b"h", post("/short", b"i"))
    assert client.app.bodies == [b"abc", b"d", b"e", b"fgh", b"i"]


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
    assert client.context.arriving.bytes == 50
    client.connection.shutdown()
    client.answer(Answer(200, b"held" + LONG))
    assert client.pipe.closed
    assert client.context.arriving.bytes == 0
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
    assert client.context.arriving.bytes == 120
    client.answer(Answer(200, LONG))
    client.pipe.read()
    await asyncio.sleep(0)
    assert client.context.arriving.bytes == 70
    client.connection.connection_lost(None)
    await asyncio.sleep(0)
    assert client.context.arriving.bytes == 0


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
