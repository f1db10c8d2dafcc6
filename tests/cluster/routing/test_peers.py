"""How the other servers are found."""

import asyncio
import socket
import threading
from typing import Any

import pytest

from ors import Server
from ors.cluster.routing.peers import Peers
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
