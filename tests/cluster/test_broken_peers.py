"""Peers that break the protocol of links: the link is closed, and every client is answered."""

import asyncio
import json
import logging
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from ors import Limits
from ors._protocol import frames
from ors.cluster.pages import answer_of
from ors.cluster.peers import Peer, Peers
from ors.server.http.answers import Answer
from ors.server.http.requests import Request
from tests.cluster.test_frames import Speaker, asked
from tests.support.environments import Lab
from tests.support.in_process_cluster import ServerThread, linked_servers
from tests.support.waiting import until

HELLO = {"slot": 3, "incarnation": 7, "environments": ["lab"], "body_bytes": 1000}
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"
HEAD = struct.pack(">HH", 200, 0)


@asynccontextmanager
async def peered(
    greeting: bytes, replies: Callable[[int], bytes] = lambda number: b""
) -> AsyncIterator[Peers]:
    """Knows one peer, which sends this greeting and answers each request with these bytes."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(SWITCHED + greeting)
            while head := await reader.read(9):
                length, kind, number = struct.unpack(">IBI", head)
                await reader.readexactly(length)
                if kind == frames.REQUEST:
                    writer.write(replies(number))

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    peers = Peers()
    peers.reroute = lambda request: Answer(503, b"elsewhere")
    peers.answer_instead = lambda request, sent: peers.reroute(request)
    peers.update([f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"])
    try:
        async with asyncio.timeout(20):
            yield peers
    finally:
        await peers.close()
        server.close()


def hello(**changed: object) -> bytes:
    return frames.frame(frames.HELLO, 0, json.dumps({**HELLO, **changed}).encode())


def load(payload: bytes) -> bytes:
    return hello() + frames.frame(frames.LOAD, 0, payload)


BROKEN = {
    "no object": frames.frame(frames.HELLO, 0, b"[]"),
    "a number": frames.frame(frames.HELLO, 0, b"1"),
    "nothing in it": frames.frame(frames.HELLO, 0, b"{}"),
    "no JSON": frames.frame(frames.HELLO, 0, b"hello"),
    "a slot that is no number": hello(slot="x"),
    "a slot over 16 bits": hello(slot=2**16),
    "an incarnation over 32 bits": hello(incarnation=2**32),
    "an incarnation below 0": hello(incarnation=-1),
    "environments that are no list": hello(environments="lab"),
    "environments that are no names": hello(environments=[1]),
    "a limit below 0": hello(body_bytes=-1),
    "another hello": hello() + hello(slot=4),
    "a load that is no pair": load(b"[1]"),
    "a load that is an object": load(b"{}"),
    "a load that is a number": load(b"1"),
    "a load of words": load(b'["a", "b"]'),
    "a load below 0": load(b"[-1, true]"),
    "a presence that is none": hello() + frames.frame(frames.FOUND, 1, b"9"),
}


@pytest.mark.parametrize("greeting", BROKEN.values(), ids=BROKEN.keys())
async def test_a_peer_that_introduces_itself_wrongly_loses_its_link_with_one_line_in_the_log(
    greeting: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with peered(greeting) as peers:
            await until(lambda: "Closing the link" in caplog.text)
            (first, *_) = [record for record in caplog.records if record.levelno >= logging.WARNING]
            assert first.getMessage().startswith("Closing the link to http://127.0.0.1:")
            assert "protocol error: " in first.getMessage()
            assert first.exc_info is None
            assert not [record for record in caplog.records if record.levelno > logging.WARNING]
            await peers.settle(20)


def answered(*kinds: tuple[int, bytes]) -> Callable[[int], bytes]:
    return lambda number: b"".join(frames.frame(kind, number, payload) for kind, payload in kinds)


IMPROPER = {
    "a part before the head": answered((frames.PART, b"HTTP/1.1 200 OK\r\n\r\n")),
    "an end before the head": answered((frames.END, b"HTTP/1.1 200 OK\r\n\r\n")),
    "an answer without a status": answered((frames.WHOLE, b"")),
    "a status below 200": answered((frames.WHOLE, struct.pack(">HH", 101, 0))),
    "a status over 599": answered((frames.HEAD, struct.pack(">HH", 999, 0))),
    "headers that end early": answered((frames.WHOLE, struct.pack(">HH", 200, 8) + b"a: b\r\n\r\n")),
    "fewer headers than it says": answered((frames.WHOLE, struct.pack(">HH", 200, 9) + b"a: b\r\n")),
}


@pytest.mark.parametrize("replies", IMPROPER.values(), ids=IMPROPER.keys())
async def test_an_answer_that_breaks_the_protocol_is_not_passed_on(
    replies: Callable[[int], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async with peered(hello(), replies) as peers:
        peer = await _connected(peers)
        found = await answer_of(peer, Request("GET", "/lab/tools", b"", {}, b""))
        assert (found.status, found.body) == (503, b"elsewhere")
        assert "protocol error" in caplog.text


AFTER_HEAD = {
    "a second head": answered((frames.HEAD, HEAD), (frames.HEAD, HEAD)),
    "a whole answer": answered((frames.HEAD, HEAD), (frames.WHOLE, HEAD)),
    "a refusal": answered((frames.HEAD, HEAD), (frames.REFUSED, b"")),
}


@pytest.mark.parametrize("replies", AFTER_HEAD.values(), ids=AFTER_HEAD.keys())
async def test_an_answer_that_begins_twice_is_broken_off(
    replies: Callable[[int], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async with peered(hello(), replies) as peers:
        peer = await _connected(peers)
        found = await answer_of(peer, Request("GET", "/lab/tools", b"", {}, b""))
        assert found.status == 503
        assert b"has died" in found.body
        assert "protocol error" in caplog.text


async def test_an_answer_in_its_order_is_passed_on() -> None:
    replies = answered((frames.HEAD, HEAD + b"a"), (frames.PART, b"b"), (frames.END, b"c"))
    async with peered(hello(), replies) as peers:
        found = await answer_of(await _connected(peers), Request("GET", "/lab/tools", b"", {}, b""))
        assert (found.status, found.body) == (200, b"abc")


async def _connected(peers: Peers) -> Peer:
    await until(lambda: list(peers))
    return next(iter(peers))


# ── The server end ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerThread]:
    with linked_servers(1, tmp_path, [Lab], limits=Limits(grace_seconds=0.1)) as (made,):
        yield made


@pytest.mark.parametrize(
    "credit",
    [b"", b"\1", b"\0\0\0\0\1", b"\xff" * 64, frames.WINDOW_BYTES.to_bytes(4), b"\xff" * 4],
    ids=["none", "1 byte", "5 bytes", "64 bytes", "more than was sent", "the greatest"],
)
def test_a_credit_for_what_was_not_sent_closes_the_link(server: ServerThread, credit: bytes) -> None:
    with closing(Speaker(server.raw)) as link:
        link.say(frames.REQUEST, 1, asked(b"GET", b"/-/api/live"))
        told = link.hear()
        assert told is not None
        assert told[0] == frames.HEAD
        link.say(frames.CREDIT, 1, credit)
        while told is not None:
            told = _heard(link)
    assert server.raw.get("/health").status == 200


def _heard(link: Speaker) -> tuple[int, int, bytes] | None:
    try:
        return link.hear()
    except ConnectionResetError:
        return None
