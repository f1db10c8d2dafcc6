"""The server believes nothing that comes out of a sandbox."""

import asyncio
import socket
from pathlib import Path

import pytest

from ors.sandbox.inside.archive import pack, record, unpack
from ors.sandbox.process import HEAD, LARGEST, AgentChannel
from tests.support.waiting import until


async def connected() -> tuple[AgentChannel, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    _, channel = await asyncio.get_running_loop().create_unix_connection(AgentChannel, sock=ours)
    return channel, theirs


def answer(number: int, kind: bytes, data: bytes) -> bytes:
    return number.to_bytes(4, "big") + kind + len(data).to_bytes(4, "big") + data


def test_what_a_program_changes_while_files_are_packed_is_left_out(tmp_path: Path) -> None:
    for name in ("work/first", "work/second", "work/third/inner"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    packed = bytearray()

    def change(data: bytes) -> None:
        packed.extend(data)
        if b"work/first" in data:
            (tmp_path / "work/second").unlink()
            (tmp_path / "work/second").symlink_to("first")
            (tmp_path / "work/third/inner").unlink()
            (tmp_path / "work/third").rmdir()

    (tmp_path / "work/third").chmod(0o500)
    pack(bytes(tmp_path), {b"work": b"work"}, change, unlock=True)
    assert b"work/first" in packed
    assert b"work/second" not in packed
    assert packed.endswith(record(b"Z"))


async def test_answers_in_any_pieces_reach_who_waits_for_them() -> None:
    channel, agent = await connected()
    got: list[tuple[bytes, bytes]] = []
    number = channel.expect(lambda kind, data: got.append((kind, data)))
    message = answer(999, b"O", b"for nobody") + answer(number, b"O", b"hello") + answer(number, b"X", b"0 ")
    for byte in message:
        agent.send(bytes([byte]))
        await asyncio.sleep(0)
    await until(lambda: len(got) == 2)
    assert got == [(b"O", b"hello"), (b"X", b"0 ")]
    channel.close()
    agent.close()


async def test_an_answer_that_is_too_large_ends_the_sandbox() -> None:
    _, agent = await connected()
    agent.send((1).to_bytes(4, "big") + b"O" + (LARGEST + 1).to_bytes(4, "big"))
    assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(agent, 1), 20) == b""
    assert len(answer(0, b"O", b"")) == HEAD
    agent.close()


async def test_an_answer_that_the_agent_never_gives_ends_the_sandbox() -> None:
    channel, agent = await connected()

    def take(kind: bytes, data: bytes) -> None:
        if kind:
            int(data)

    number = channel.expect(take)
    agent.send(answer(number, b"X", b"not a number"))
    assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(agent, 1), 20) == b""
    agent.close()


STREAMS = {
    "climbs": record(b"F", 0o644, b"../out", 2) + b"hi" + record(b"Z"),
    "absolute": record(b"F", 0o644, b"/tmp/out", 2) + b"hi" + record(b"Z"),
    "climbs below": record(b"D", 0o755, b"a/../../b") + record(b"Z"),
    "empty name": record(b"F", 0o644, b"a//b", 2) + b"hi" + record(b"Z"),
    "zero byte": record(b"F", 0o644, b"a\0b", 2) + b"hi" + record(b"Z"),
    "unknown kind": record(b"B", 0o644, b"disk") + record(b"Z"),
    "long path": record(b"F", 0o644, b"a" * 5000, 0),
    "cut off": record(b"F", 0o644, b"file", 100) + b"hi",
    "nothing": b"",
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_of_files_cannot_leave_its_folder(name: str, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    rest = STREAMS[name]

    def read(size: int) -> bytes:
        nonlocal rest
        data, rest = rest[:size], rest[size:]
        if len(data) < size:
            raise ValueError("too early")
        return data

    with pytest.raises(ValueError, match=r"stream|early"):
        unpack(bytes(inside), read, links=False)
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


def test_the_host_never_makes_links_of_a_sandbox(tmp_path: Path) -> None:
    stream = bytearray()
    source = tmp_path / "source"
    source.mkdir()
    (source / "link").symlink_to("/etc")
    (source / "file").write_text("x")
    pack(bytes(tmp_path), {b"source": b"copy"}, stream.extend)

    def read(size: int) -> bytes:
        data = bytes(stream[:size])
        del stream[:size]
        return data

    unpack(bytes(tmp_path), read, links=False)
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["file"]
