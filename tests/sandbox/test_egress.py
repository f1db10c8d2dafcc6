"""Sandboxes that reach the places of an allow-list, through the proxy on their loopback."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address

import pytest

from ors.errors import SandboxUnavailable
from ors.sandbox import Allow, Sandbox, SandboxSpec, open_sandbox
from ors.sandbox.battery import run_inside
from ors.sandbox.egress import MOST_CONNECTIONS, Refused, public, understood
from ors.sandbox.planted import PlantedHost

FETCH = """
import sys, urllib.error, urllib.request
for url in sys.argv[1:]:
    try:
        answer = urllib.request.urlopen(url, data=sys.stdin.buffer.read() or None, timeout=10)
        print(answer.read().decode(), answer.headers["Connection"])
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode())
"""
TUNNEL = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", 3128, timeout=10)
connection.set_tunnel("127.0.0.1", int(sys.argv[1]))
for _ in range(3):
    connection.request("POST", "/", b"x" * 2**20)
    print(connection.getresponse().read())
"""
HOLD = """
import socket, sys, time
held = [socket.create_connection(("127.0.0.1", 3128)) for _ in range(int(sys.argv[1]))]
last = socket.create_connection(("127.0.0.1", 3128))
print(last.recv(1000).decode(), flush=True)
time.sleep(60)
"""


class Echo(BaseHTTPRequestHandler):
    """Says how long the body was, and which path was asked for."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        size = len(self.rfile.read(int(self.headers["Content-Length"] or 0)))
        body = f"{size} {self.path} {self.headers['Host']} {self.headers['Connection']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def echo() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def port() -> Iterator[int]:
    with echo() as opened:
        yield opened


def listed(*places: str, writable: bool = False) -> SandboxSpec:
    return SandboxSpec(backend="bwrap", network=Allow(*places), writable=writable)


async def fetched(box: Sandbox, *urls: str, stdin: bytes = b"") -> str:
    result = await box.exec(["python3", "-c", FETCH, *urls], stdin=stdin)
    assert result.returncode == 0, result.stderr
    return result.stdout.decode()


@pytest.mark.parametrize("writable", [False, True])
async def test_programs_find_the_proxy_by_their_environment(port: int, writable: bool) -> None:
    with echo() as other:
        async with await open_sandbox(listed(f"127.0.0.1:{port}", writable=writable)) as box:
            said = await fetched(box, f"http://127.0.0.1:{port}/a?b", f"http://127.0.0.1:{other}/")
            assert said.splitlines() == [
                f"0 /a?b 127.0.0.1:{port} close close",
                f"403 sandbox: 127.0.0.1:{other} is not on the allow-list",
                "",
            ]
            assert (await fetched(box, f"http://127.0.0.1:{port}/", stdin=bytes(3 * 2**20))).startswith(
                "3145728 "
            )
            (copy,) = await box.fork()
            async with copy:
                assert (await fetched(copy, f"http://127.0.0.1:{port}/")).startswith("0 / ")


async def test_a_tunnel_carries_whatever_the_two_ends_say(port: int) -> None:
    async with await open_sandbox(listed(f"127.0.0.1:{port}")) as box:
        result = await box.exec(["python3", "-c", TUNNEL, str(port)])
        assert result.stdout.count(b"1048576 / ") == 3, result.stderr


async def test_a_name_of_a_private_address_needs_the_address_on_the_list_too(port: int) -> None:
    async with await open_sandbox(listed(f"127.1:{port}")) as box:
        said = await fetched(box, f"http://127.1:{port}/")
        assert said.startswith(f"502 sandbox: 127.1:{port} cannot be reached")
        assert "private address" in said
    async with await open_sandbox(listed(f"127.1:{port}", f"127.0.0.1:{port}")) as box:
        assert (await fetched(box, f"http://127.1:{port}/")).startswith("0 / ")
    async with await open_sandbox(listed(f"localhost:{port}")) as box:
        assert (await fetched(box, f"http://localhost:{port}/")).startswith("0 / ")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        *((each, True) for each in ("93.184.215.14", "2606:2800::1", "64:ff9b::5db8:d70e")),
        *((each, False) for each in ("10.0.0.1", "169.254.169.254", "fe80::1", "fc00::1", "fec0::1")),
        # Gateways translate these to an address of IPv4, which is a private one.
        *((each, False) for each in ("64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "::7f00:1")),
    ],
)
def test_an_address_is_public_or_not(address: str, expected: bool) -> None:
    assert public(ip_address(address)) == expected


async def test_a_place_whose_name_cannot_be_looked_up_cannot_be_reached() -> None:
    async with await open_sandbox(listed("a..b:80")) as box:
        assert (await fetched(box, "http://a..b:80/")).startswith("502 sandbox: a..b:80 cannot be reached")


async def test_nothing_but_the_proxy_leads_out() -> None:
    attacks = ["connect to the host's loopback", "reach the internet", "reach the metadata address"]
    attacks += ["connect to a unix socket", "connect to an abstract socket", "find descriptors of the server"]
    with PlantedHost() as host:
        async with await open_sandbox(listed(f"127.0.0.1:{host.ports[0]}")) as box:
            achieved = await run_inside(box, attacks, host.targets(box.spec, box.work, "/nowhere"))
    assert achieved == dict.fromkeys(attacks, "")


async def test_connections_have_a_number_and_end_with_the_sandbox(port: int) -> None:
    before, descriptors = asyncio.all_tasks(), os.listdir("/proc/self/fd")
    async with await open_sandbox(listed(f"127.0.0.1:{port}")) as box:
        process = await box.spawn(["python3", "-c", HOLD, str(MOST_CONNECTIONS)])
        assert b"503 Service Unavailable" in await process.read()
    await asyncio.sleep(0)
    await asyncio.gather(*(asyncio.all_tasks() - before - {asyncio.current_task()}), return_exceptions=True)
    assert asyncio.all_tasks() == before
    async with asyncio.timeout(10):
        while sorted(os.listdir("/proc/self/fd")) != sorted(descriptors):
            await asyncio.sleep(0.01)  # transports close in a later turn


@pytest.mark.parametrize(
    "wrong", ["example.org", "example.org:0", "example.org:99999", "http://a:1", "a b:1", "*:1", ":1"]
)
def test_a_place_is_a_host_and_a_port(wrong: str) -> None:
    with pytest.raises(ValueError, match="must be host:port"):
        Allow(wrong)


def test_places_are_compared_in_one_form() -> None:
    assert Allow("Example.ORG:0443", "[0:0::1]:80").places == {"example.org:443", "[::1]:80"}


@pytest.mark.parametrize("backend", ["podman", "docker", "none"])
async def test_backends_without_allow_lists_say_so(backend: str) -> None:
    with pytest.raises(SandboxUnavailable):
        await open_sandbox(SandboxSpec(backend=backend, network=Allow()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "lines",
    [
        "GET / HTTP/1.1",
        "GET https://a:1/ HTTP/1.1",
        "CONNECT http://a:1/ HTTP/1.1",
        "CONNECT a HTTP/1.1",
        "connect a:1 HTTP/1.1",
        "CONNECT a:1 HTTP/1.1\r\nHost: b:1",
        "GET http:///x HTTP/1.1",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\n folded",
        "GET http://a/ HTTP/1.1\r\nX: a\nHost: b",
        "GET http://a/ HTTP/1.1\r\nContent-Length: +1",
        "POST http://a/ HTTP/1.1\r\nTransfer-Encoding: chunked",
        "GET http://a/ HTTP/2\r\nHost: a",
    ],
)
def test_a_request_with_two_meanings_is_refused(lines: str) -> None:
    with pytest.raises(Refused):
        understood(lines)
