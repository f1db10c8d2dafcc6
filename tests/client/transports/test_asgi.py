"""A server in this process: any ASGI application, streaming, ended by its client."""

import asyncio
from typing import Any

import pytest

import ors.testing
from ors import Environment, Server
from ors.client import ASGITransport, AsyncORS, Options
from ors.client.transports.base import Broken
from ors.errors import BadRequest, InvalidEnvironment, StartupFailed
from tests.support.environments import Lab, Other


async def test_an_authors_test_is_five_lines() -> None:
    async with ors.testing.session(Lab, task_spec={"id": "author"}, secrets={"key": "k"}) as session:
        output = await session.call_tool("reward", {"value": 1.0, "finished": True})
        assert output.reward == 1.0
        assert output.finished


async def test_a_task_may_be_given_by_split_and_index_and_the_environment_by_name() -> None:
    async with ors.testing.session(Lab, split="train", index=3) as session:
        assert (await session.get_prompt())[0].text == "task 3"  # type: ignore[union-attr]
    async with ors.testing.session(Server([Lab, Other]), {"kind": "a"}, environment="other") as session:
        assert {tool.name for tool in await session.list_tools()} == {"always", "pick"}
    with pytest.raises(BadRequest):
        async with ors.testing.session(Lab, split="train", index=99):
            pass


async def test_an_environment_that_is_written_wrongly_is_refused() -> None:
    with pytest.raises(InvalidEnvironment):
        async with ors.testing.session(type("Empty", (Environment,), {}), {}):
            pass


async def test_leaving_ends_every_session_and_every_task() -> None:
    before = asyncio.all_tasks()
    async with ors.testing.client(Lab) as client:
        await client.environment("lab").session(split="train", index=0).start()
    assert asyncio.all_tasks() == before


async def until_gone(scope: Any, receive: Any, send: Any) -> None:
    """Streams a first piece, then says what it received next."""
    assert scope["type"] == "http"
    assert await receive() == {"type": "http.request", "body": b"hello", "more_body": False}
    await send({"type": "http.response.start", "status": 200, "headers": [(b"X-Kind", b"stream")]})
    await send({"type": "http.response.body", "body": b"first", "more_body": True})
    scope["app_saw"].set_result(await receive())


async def test_pieces_arrive_as_they_are_sent_and_closing_is_a_disconnect() -> None:
    saw: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await until_gone({**scope, "app_saw": saw}, receive, send)

    transport = ASGITransport(app)
    response = await transport.send("POST", "/x?y=1", {}, b"hello")
    assert (response.status, response.headers["x-kind"]) == (200, "stream")
    assert await anext(response.body) == b"first"
    assert not saw.done()
    response.close()
    assert await saw == {"type": "http.disconnect"}
    await transport.close()


@pytest.mark.parametrize("begin", [True, False])
async def test_an_application_that_raises_is_a_broken_connection(begin: bool) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if begin:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError("oh")

    async def first_piece() -> bytes:
        return await anext((await transport.send("GET", "/", {}, None)).body)

    transport = ASGITransport(app)
    with pytest.raises(Broken, match="ZeroDivisionError") as caught:
        await first_piece()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    await transport.close()


async def test_a_body_without_a_start_is_a_broken_connection() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.body", "body": b"all of it"})

    transport = ASGITransport(app)
    async with asyncio.timeout(20):
        with pytest.raises(Broken, match="did not complete its answer"):
            await transport.send("GET", "/", {}, None)
    await transport.close()


async def test_an_application_that_does_not_start_is_told() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    async with AsyncORS(transport=ASGITransport(app), options=Options(retries=0)) as client:
        with pytest.raises(StartupFailed, match="no database"):
            await client.health()
