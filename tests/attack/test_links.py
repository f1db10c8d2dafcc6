"""Frames on links, random and mutated: at a server's end, and at a router's before servers that lie."""

import asyncio
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.attack import link
from tests.attack.conftest import Scale, Tally
from tests.attack.fronts import ALONE, Front, front, until
from tests.attack.wire import Hung, Malformed, answers, talk
from tests.support.raw_http import Raw

pytestmark = pytest.mark.xdist_group("attack-links")

GROWTH_MB = 100
BATCH = 20
ASKED = (
    b"GET /ground/prompt HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: lied-to\r\nConnection: close\r\n\r\n"
)


@pytest.mark.parametrize("upgrade", [link.UPGRADE, link.MULTIPLEXED], ids=["peer", "client"])
@pytest.mark.parametrize("name", ["server", "workers"])
def test_no_frame_harms_the_server_that_answers(
    name: str, upgrade: bytes, tmp_path: Path, scale: Scale, tally: Tally
) -> None:
    wanted = scale.of(4_000, 150_000)
    with front(name, tmp_path, target=ALONE) as where:
        noise, sent, links, worst = link.Noise(f"{scale.seed}.{name}", where.sids[0]), 0, 0, 0
        while sent < wanted:
            links += 1
            given = _fed(where, noise, upgrade)
            sent += given[0]
            worst = max(worst, given[1])
        assert worst < 500, worst
        assert where.healthy()
        assert where.told(where.sids[0], "note", name="after") == "after"
        assert until(lambda: where.megabytes < where.at_first + GROWTH_MB), where.megabytes
        assert "Traceback" not in where.log(), where.log()[-3000:]
        tally(
            f"frames on links of a {name}",
            f"{sent:,} on {links:,} links: it lives, no 5xx, {where.megabytes - where.at_first:+.0f} MB",
        )


def _fed(where: Front, noise: link.Noise, upgrade: bytes) -> tuple[int, int]:
    """Sends frames until the link is closed upon one; gives how many, and the highest status answered."""
    sent, worst, heard = 0, 0, b""
    with link.linked((where.raw.host, where.raw.port), upgrade) as end:
        end.settimeout(0.0)
        for _ in range(50):
            try:
                end.settimeout(5.0)
                end.sendall(b"".join(noise.asked() for _ in range(BATCH)))
                sent += BATCH
                end.settimeout(0.0)
                while part := end.recv(2**20):
                    heard += part
                break
            except BlockingIOError:
                found, heard = link.split(heard)
                statuses = [link.status(payload) for kind, _, payload in found if kind in link.ANSWERS]
                worst = max([worst, *statuses])
            except OSError:
                break
    return max(sent, 1), worst


class Liar:
    """A server behind a router: it greets well and lies ever after."""

    def __init__(self, noise: link.Noise, lies: int) -> None:
        self.sent = self.links = 0
        self._noise = noise
        self._lies = lies
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self.port = 0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        server = await asyncio.start_server(self._lie, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._up.set()
        await self._over.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    async def _lie(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = {"slot": 1, "incarnation": 7, "environments": ["ground"], "body_bytes": 2**20}
        self.links += 1
        with suppress(OSError, asyncio.IncompleteReadError), closing(writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(link.SWITCHED + link.frame(link.HELLO, 0, json.dumps(hello).encode()))
            writer.write(link.frame(link.LOAD, 0, b"[0,true]"))
            heard = b""
            while part := await reader.read(65536):
                found, heard = link.split(heard + part)
                for kind, number, _ in found:
                    if kind == link.FIND:
                        writer.write(link.frame(link.FOUND, number, b"2"))
                    elif kind == link.REQUEST:
                        lies = [self._noise.answered([number]) for _ in range(self._lies)]
                        self.sent += len(lies)
                        writer.write(b"".join(lies))
                        await writer.drain()
                        return  # or whoever waits would wait for good

    @contextmanager
    def lying(self) -> Iterator[str]:
        self._thread.start()
        assert self._up.wait(20)
        try:
            yield f"http://127.0.0.1:{self.port}"
        finally:
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(20)
            self._loop.close()


def test_a_server_that_lies_harms_no_router_and_no_other_server(
    tmp_path: Path, scale: Scale, tally: Tally
) -> None:
    liar = Liar(link.Noise(f"{scale.seed}.liar", "lied-to"), lies=10)
    count = scale.of(60, 2500)
    with liar.lying() as lies, front("router", tmp_path, beside=[lies]) as where:
        came = Counter(_came(where.raw) for _ in range(count))
        hung = [text for text in came if text.startswith("hangs")]
        assert not hung, f"{hung[:3]} of {came}"
        assert where.healthy(), where.log()
        assert where.told(where.sids[0], "note", name="honest") == "honest"
        assert until(lambda: where.megabytes < where.at_first + GROWTH_MB), where.megabytes
        assert "Traceback" not in where.log(), where.log()[-3000:]
    tally(
        "lies of a server to a router",
        f"{liar.sent:,} on {liar.links:,} links, for {count:,} clients: none hangs",
    )


def _came(router: Raw) -> str:
    """The statuses of what a client gets to see, or that it makes no sense, or that nothing comes."""
    try:
        given = answers(talk((router.host, router.port), [ASKED]))
    except Hung as error:
        return f"hangs: {error}"
    except Malformed:
        return "broken"
    return " ".join(str(answer.status) for answer in given) or "closed"


@pytest.mark.parametrize("upgrade", [link.UPGRADE, link.MULTIPLEXED], ids=["peer", "client"])
def test_a_link_that_does_not_read_costs_little_memory(
    upgrade: bytes, tmp_path: Path, scale: Scale, tally: Tally
) -> None:
    asked = scale.of(8_000, 60_000)
    with front("server", tmp_path) as where:
        address = (where.raw.host, where.raw.port)
        with link.linked(address, upgrade) as end:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sent = link.stuffed(end, b"".join(link.tasks(n) for n in range(1, asked + 1)), 20)
            grown = where.grown(5)
            assert where.healthy()
            assert grown < GROWTH_MB, f"{grown:.0f} MB for {sent} bytes"
    tally("a link that does not read", f"{asked:,} requests of 50 KB each, {grown:+.0f} MB")
