"""How the other servers are found."""

import asyncio
import socket
import threading
from typing import Any

import pytest

from ors import Server
from ors._protocol import CREATE, PROMPT, SESSION_ID
from ors.cluster.peers import Peers
from ors.cluster.router import Router
from ors.server.http.answers import Answer, Headers
from ors.server.http.requests import Request
from ors.server.http.streams import Later, Outcome, Sink
from tests.support.environments import Lab
from tests.support.live_server import serving
from tests.support.threads import no_new_thread
from tests.support.waiting import until


async def test_names_that_are_looked_up_for_long_keep_no_server_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lookup, over = socket.getaddrinfo, threading.Event()

    def slow(name: str, *rest: Any, **more: Any) -> Any:
        if name.endswith(".absent"):
            over.wait(30)
            raise socket.gaierror("nobody has that name")
        return lookup(name, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with serving(Server([Lab], slot=3)) as url:
        peers = Peers()
        peers.update(
            [*(f"http://{number}.absent:1" for number in range(64)), url.replace("127.0.0.1", "localhost")]
        )
        try:
            async with asyncio.timeout(20):
                await until(lambda: [peer.slot for peer in peers] == [3])
            assert len(peers.missing()) == 64
        finally:
            over.set()
            await peers.close()


async def test_a_server_is_found_though_its_name_could_not_be_looked_up_at_first() -> None:
    with serving(Server([Lab], slot=3)) as url:
        peers = Peers()
        try:
            with no_new_thread():
                peers.update([url.replace("127.0.0.1", "localhost")])
                (peer,) = peers._by_address.values()
                async with asyncio.timeout(20):
                    await until(lambda: peer.tried)
            assert not peer.greeted
            async with asyncio.timeout(20):
                await until(lambda: [peer.slot for peer in peers] == [3])
        finally:
            await peers.close()


class Status(Sink):
    """A sink that keeps the status of a short answer."""

    def __init__(self) -> None:
        self.found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, Answer):
            self.found.set_result(outcome.status)
        else:
            outcome.begin(self)

    def whole(self, status: int, headers: Headers, body: bytes) -> bool:
        self.found.set_result(status)
        return True

    def head(self, status: int, headers: Headers, body: bytes = b"") -> None:
        raise AssertionError("a long answer")

    def part(self, data: bytes) -> None: ...

    def end(self, data: bytes) -> bool:
        return True

    def abort(self) -> None:
        raise AssertionError("no answer")


async def status_of(outcome: Outcome) -> int:
    sink = Status()
    sink.answer(outcome)
    async with asyncio.timeout(20):
        return await sink.found


async def test_a_request_that_overlaps_a_refused_creation_is_answered_by_the_server() -> None:
    headers = {SESSION_ID.lower().encode(): b"made-by-the-client"}
    with serving(Server([Lab], slot=3)) as url:
        peers = Peers()
        router = Router(peers)
        peers.update([url])
        try:
            await until(lambda: any(peer.accepts_sessions for peer in peers))
            asking = router.elsewhere(Request("GET", PROMPT.path("lab"), b"", headers, b""))
            creating = router.elsewhere(Request("POST", CREATE.path(), b"", headers, b"[]"))
            assert isinstance(asking, Later)
            assert isinstance(creating, Later)
            assert await status_of(creating) == 400
            assert await status_of(asking) == 404
        finally:
            await peers.close()
