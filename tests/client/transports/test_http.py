"""HTTP on our own: connections and what they carry."""

import asyncio
import base64
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

import pytest

from ors.client import AsyncORS, Options, Task
from ors.client.transports.base import Broken, NotSent
from ors.client.transports.connection import HIGH_WATER_BYTES
from ors.client.transports.http import DirectTransport
from ors.errors import TransportError
from tests.support import TLS
from tests.support.scripted_server import Reply, answer, events, head, result, scripted, stream_headers


def direct(url: str, **options: Any) -> DirectTransport:
    return DirectTransport(urlsplit(url), Options(**options))


async def get(transport: DirectTransport, path: str = "/x") -> bytes:
    response = await transport.send("GET", path, {}, None)
    return b"".join([chunk async for chunk in response.body])


async def test_a_chunked_answer_is_put_together() -> None:
    async with scripted() as script:
        chunked = head(200, {"Transfer-Encoding": "chunked"}) + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        script.on("/x", Reply(chunked))
        transport = direct(script.url)
        assert [await get(transport) for _ in range(3)] == [b"abcde"] * 3
        assert script.connections == 1
        await transport.close()


async def test_an_answer_may_end_with_its_connection() -> None:
    async with scripted() as script:
        script.on("/x", Reply(head(200, {}) + b"all of it", cut=True))
        assert await get(direct(script.url)) == b"all of it"


@pytest.mark.parametrize(
    "sent", [head(200, {}, 10) + b"half", head(200, {"Transfer-Encoding": "chunked"}) + b"9\r\nx"]
)
async def test_an_answer_that_ends_too_early_is_broken(sent: bytes) -> None:
    async with scripted() as script:
        script.on("/x", Reply(sent, cut=True))
        with pytest.raises(Broken):
            await get(direct(script.url))


async def test_interim_answers_are_skipped() -> None:
    async with scripted() as script:
        final = answer({"a": 1})
        script.on("/x", Reply(b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" + final.data))
        assert await get(direct(script.url)) == b'{"a": 1}'


async def test_an_idle_connection_is_not_used_after_its_time() -> None:
    async with scripted() as script:
        script.on("/x", answer({}))
        transport = direct(script.url, keepalive_seconds=0.05)
        await get(transport)
        await get(transport)
        assert script.connections == 1
        await asyncio.sleep(0.1)  # a real duration: it is idle for so long
        await get(transport)
        assert script.connections == 2
        await transport.close()


async def test_a_connection_that_the_server_closes_is_not_used_again() -> None:
    async with scripted() as script:
        script.on("/x", answer({}, headers={"Connection": "close"}))
        transport = direct(script.url)
        await get(transport)
        await get(transport)
        assert script.connections == 2


async def test_closing_an_answer_that_is_not_whole_closes_its_connection() -> None:
    async with scripted() as script:
        script.on("/x", Reply(head(200, {}, 100) + b"some", hold=asyncio.Event()), answer({}))
        transport = direct(script.url)
        response = await transport.send("GET", "/x", {}, None)
        assert await anext(response.body) == b"some"
        response.close()
        await get(transport)
        assert script.connections == 2
        await transport.close()


async def test_a_connection_that_is_just_closing_is_passed_over() -> None:
    async with scripted() as script:
        script.on("/x", answer({}))
        transport = direct(script.url)
        await get(transport)
        (connection,) = transport._open
        assert connection._transport is not None
        connection._transport.close()  # the loop has not told the connection yet
        await get(transport)
        await get(transport)
        assert script.connections == 2
        await transport.close()


async def test_what_nobody_asked_for_ends_the_connection() -> None:
    async with scripted() as script:
        script.on("/x", Reply(answer({}).data + b"HTTP/1.1 200 X\r\n\r\n"))
        transport = direct(script.url)
        assert await get(transport) == b"{}"
        assert await get(transport) == b"{}"
        assert script.connections == 2


async def test_a_reader_that_is_slow_slows_the_server_down() -> None:
    async with scripted() as script:
        body = b"x" * (40 * HIGH_WATER_BYTES)
        script.on("/x", Reply(head(200, {}, len(body)) + body))
        transport = direct(script.url)
        response = await transport.send("GET", "/x", {}, None)
        await asyncio.sleep(0.2)  # a real duration, in which the server would send all of it
        assert response._unread < 4 * HIGH_WATER_BYTES  # type: ignore[attr-defined]
        assert sum([len(chunk) async for chunk in response.body]) == len(body)
        assert response.ended
        await transport.close()


async def test_cookies_of_a_load_balancer_are_sent_back() -> None:
    async with scripted() as script:
        script.on("/x", answer({}, headers={"Set-Cookie": "server=b7; Path=/; HttpOnly"}))
        transport = direct(script.url)
        await get(transport)
        await get(transport)
        assert [request.headers.get("cookie") for request in script.requests] == [None, "server=b7"]
        await transport.close()


async def test_a_login_in_the_url_is_sent_as_basic_authorization() -> None:
    async with scripted() as script:
        script.on("/x", answer({}))
        await get(direct(script.url.replace("http://", "http://me:p%40ss@")))
        (sent,) = script.requests
        assert sent.headers["authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()
        assert "@" not in sent.headers["host"]


async def test_of_several_addresses_the_one_that_answers_is_found_and_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with scripted() as script:
        script.on("/x", answer({}))
        transport = direct(script.url.replace("127.0.0.1", "several.test"), keepalive_seconds=0)
        port = urlsplit(script.url).port
        asked = 0

        async def several(*_: Any, **__: Any) -> list[Any]:
            nonlocal asked
            asked += 1
            tcp = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            return [(*tcp, ("127.0.0.1", 1)), (*tcp, ("127.0.0.1", port))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", several)
        for _ in range(3):
            await get(transport)
        assert asked == 1
        await transport.close()


async def test_an_address_that_does_not_answer_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", never)
    with pytest.raises(NotSent, match="no connection within"):
        await get(direct("http://127.0.0.1:1", connect_seconds=0.05))


async def test_https_is_spoken_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    async with scripted(tls=context) as script:
        script.on("/health", answer({"status": "ok"}))
        async with AsyncORS(script.url, options=Options(retries=0)) as strict:
            with pytest.raises(TransportError, match="certificate"):
                await strict.health()
        monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "cert.pem"))
        options = Options(keepalive_seconds=0)
        async with AsyncORS(script.url.replace("127.0.0.1", "localhost"), options=options) as client:
            for _ in range(3):
                assert await client.health() == {"status": "ok"}
        assert script.connections >= 3


def test_it_works_on_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def episode() -> None:
        async with scripted(True) as script, AsyncORS(script.url) as client:
            begun = Reply(head(200, stream_headers(True)) + events(("task_id", "t")), cut=True)
            done = events(("task_id", "t"), ("end", result("fast")))
            script.on("/env/call", begun, Reply(head(200, stream_headers(True), len(done)) + done))
            async with client.environment("env").session(Task("env", {})) as session:
                output = await session.call_tool("echo")
                assert output.blocks[0].text == "fast"  # type: ignore[union-attr]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(episode())
