"""By way of a proxy: what it is asked, tunnels, and proxies that refuse."""

import asyncio
import base64
import ssl
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

import pytest

from ors.client import AsyncORS, Options, http_transport
from ors.client.transports.base import NotSent
from ors.client.transports.http import DirectTransport, ProxiedTransport
from tests.support import TLS
from tests.support.http_proxy import proxying
from tests.support.scripted_server import Reply, answer, head, scripted

Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


def context() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    return made


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our certificate is trusted, and what is set outside does not count."""
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "cert.pem"))
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine function on each loop."""
    factory = asyncio.new_event_loop
    if request.param == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop

    def runs(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(work())

    return runs


def proxied(url: str, proxy: str, **options: Any) -> ProxiedTransport:
    return ProxiedTransport(urlsplit(url), urlsplit(proxy), Options(**options))


async def get(transport: DirectTransport, path: str = "/x") -> bytes:
    response = await transport.send("GET", path, {}, None)
    return b"".join([chunk async for chunk in response.body])


def with_login(url: str) -> str:
    return url.replace("://", "://me:p%40ss@")


LOGIN = "Proxy-Authorization: Basic " + base64.b64encode(b"me:p@ss").decode()


@pytest.mark.parametrize("proxy_tls", [False, True])
def test_http_is_asked_of_the_proxy_by_its_whole_url(run: Run, proxy_tls: bool) -> None:
    async def work() -> None:
        async with scripted() as script, proxying(context() if proxy_tls else None) as proxy:
            script.on("/base/x", answer({"a": 1}))
            transport = proxied(script.url + "/base/", with_login(proxy.url))
            assert [await get(transport) for _ in range(3)] == [b'{"a": 1}'] * 3
            await transport.close()
            assert len(proxy.heads) == 3
            lines = proxy.heads[-1].split("\r\n")
            assert script.connections == 1
            assert lines[0] == f"GET {script.url}/base/x HTTP/1.1"
            assert f"Host: {urlsplit(script.url).netloc}" in lines
            assert LOGIN in lines

    run(work)


@pytest.mark.parametrize("proxy_tls", [False, True])
def test_https_goes_through_a_tunnel_that_is_kept(run: Run, proxy_tls: bool) -> None:
    async def work() -> None:
        async with scripted(tls=context()) as script, proxying(context() if proxy_tls else None) as proxy:
            body = b"x" * 3_000_000
            script.on("/x", Reply(head(200, {}, len(body)) + body))
            transport = proxied(script.url, with_login(proxy.url))
            for _ in range(3):
                assert await get(transport) == body
            await transport.close()
            (asked,) = proxy.heads
            netloc = urlsplit(script.url).netloc
            assert asked == f"CONNECT {netloc} HTTP/1.1\r\nHost: {netloc}\r\n{LOGIN}\r\n\r\n"
            assert script.connections == 1
            assert "proxy-authorization" not in script.requests[0].headers

    run(work)


@pytest.mark.parametrize("head", [b"", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n"])
async def test_headers_about_a_body_of_the_answer_to_connect_say_nothing(head: bytes) -> None:
    async with scripted(tls=context()) as script, proxying() as proxy:
        script.on("/x", answer({}))
        proxy.answer = b"HTTP/1.0 200 OK\r\n" + head + b"\r\n"
        transport = proxied(script.url, proxy.url)
        assert await get(transport) == b"{}"
        await transport.close()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "answered 407 Proxy Authentication Required"),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", "answered 502 Bad Gateway"),
        (b"x" * 70_000, "answered xxx"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "the proxy answered"),
        (b"", "the proxy hung up"),
    ],
)
async def test_a_proxy_that_makes_no_tunnel_is_told_with_its_answer(said: bytes, told: str) -> None:
    async with scripted(tls=context()) as script, proxying() as proxy:
        proxy.answer = said
        transport = proxied(script.url, with_login(proxy.url))
        with pytest.raises(NotSent, match=told) as raised:
            await get(transport)
        assert f"through the proxy localhost:{urlsplit(proxy.url).port}" in str(raised.value)
        assert "p%40ss" not in str(raised.value)
        assert not script.requests


async def test_a_proxy_that_never_answers_is_given_up_in_time() -> None:
    async with scripted(tls=context()) as script, proxying() as proxy:
        proxy.answer = b"HTTP/1.1 200 "
        transport = proxied(script.url, proxy.url, connect_seconds=0.05)
        with pytest.raises(NotSent, match="no connection within"):
            await get(transport)
        assert not transport._open


async def test_a_proxy_that_is_not_there_is_told() -> None:
    with pytest.raises(NotSent, match=r"http://there.test cannot be reached through the proxy 127.0.0.1:1: "):
        await get(proxied("http://there.test", "http://127.0.0.1:1"))


async def test_the_server_behind_a_tunnel_must_show_its_own_certificate() -> None:
    async with scripted(tls=context()) as script, proxying() as proxy:
        script.on("/x", answer({}))
        transport = proxied(script.url.replace("127.0.0.1", "there.test"), proxy.url)
        with pytest.raises(NotSent, match="certificate"):
            await get(transport)
        assert not script.requests
        assert not transport._open


async def test_variables_choose_the_proxy_by_the_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted(tls=context()) as script, proxying() as proxy:
        script.on("/health", answer({"status": "ok"}))
        monkeypatch.setenv("https_proxy", urlsplit(proxy.url).netloc)  # without a scheme, as curl takes it
        async with AsyncORS(script.url) as client:
            assert await client.health() == {"status": "ok"}
        assert len(proxy.heads) == 1
    assert type(http_transport("http://127.0.0.1:1")) is DirectTransport


@pytest.mark.parametrize("no_proxy", ["there.test", ".test", "there.test:8080", "a.test, there.test", "*"])
def test_no_proxy_names_hosts_as_the_standard_library_reads_it(
    monkeypatch: pytest.MonkeyPatch, no_proxy: str
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", no_proxy)
    assert type(http_transport("http://there.test:8080")) is DirectTransport
    if no_proxy != "*":
        assert type(http_transport("http://elsewhere.org:8080")) is ProxiedTransport


@pytest.mark.parametrize("proxy", ["socks5://me:secret@127.0.0.1:1080", "http://"])
def test_a_proxy_that_speaks_no_http_is_refused(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(ValueError, match="a proxy must be like http://host:port, not") as raised:
        http_transport("http://there.test")
    assert "secret" not in str(raised.value)
