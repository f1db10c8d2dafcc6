"""Programs that the owner of a session starts in its sandbox, and that reach nothing but their owner."""

import asyncio
import hashlib
import json
import os
import shlex
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ors import Server
from ors.client import AsyncORS
from ors.client.sessions.program import SessionProgram
from ors.errors import BadRequest, NotFound
from ors.sandbox.spec import PROXY_PORT
from tests.support.environments import Lab
from tests.support.in_process_cluster import linked_servers, minted
from tests.support.live_server import serving
from tests.support.mcp_messages import path_of
from tests.support.raw_http import Raw
from tests.support.waiting import until, wait_until
from tests.support.workshop_environment import Closed, Workshop

TASK = {"word": "fig"}
ASKS = f"""
import hashlib, sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
asked = urllib.request.Request("http://127.0.0.1:{PROXY_PORT}/there", sys.stdin.buffer.read())
with opener.open(asked) as told:
    print(hashlib.sha256(told.read()).hexdigest())
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Server([Workshop, Closed])) as found:
        yield found


class Owner:
    """A session's owner, with a server of its own that echoes bodies."""

    def __init__(self, session: Any, port: int) -> None:
        self.session, self.port = session, port

    async def start(self, *command: str, **more: Any) -> SessionProgram:
        return await SessionProgram.start(self.session, {"command": command, **more}, self.port)

    async def run(self, *command: str, given: bytes = b"", **more: Any) -> tuple[int | None, bytes, bytes]:
        """The exit status of a program, what it printed, and its errors."""
        program = await self.start(*command, **more)
        printed = asyncio.gather(rest(program.read), rest(program.read_stderr))
        await program.write(given, end=True)
        return await program.wait(), *await printed


async def rest(read: Any) -> bytes:
    return b"".join([part async for part in parts(read)])


async def parts(read: Any) -> AsyncIterator[bytes]:
    while part := await read():
        yield part


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    size = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
    writer.write(await reader.readexactly(size))
    await writer.drain()
    writer.close()


@asynccontextmanager
async def owner(url: str, environment: str = "workshop", sid: str | None = None) -> AsyncIterator[Owner]:
    listener = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with listener, AsyncORS(url) as client:
        env = client.environment(environment)
        session = env.session(split="train", index=0) if sid is None else env.attach(sid)
        async with session:
            yield Owner(session, listener.sockets[0].getsockname()[1])


async def test_a_program_reads_prints_and_ends(url: str) -> None:
    async with owner(url) as own:
        told = await own.run(
            *("sh", "-c", 'cat; cat /home/agent/.deep/settings; echo "$WORD" >&2; exit 3'),
            given=b"input\n",
            env={"WORD": "an error"},
            files={"/home/agent/.deep/settings": "settings"},
        )
        assert told == (3, b"input\nsettings", b"an error\n")
        assert (await own.run("sh", "-c", "kill -9 $$"))[0] == -9
        assert (await own.run("no-such-program"))[0] == 127
        assert (await own.run("cat", "wanted.txt"))[1] == b"fig"


async def test_what_it_prints_is_never_cut_or_mixed_up(url: str) -> None:
    async with owner(url) as own:
        _, printed, _ = await own.run("seq", "1000000")
    assert printed == b"".join(b"%d\n" % number for number in range(1, 1_000_001))


async def test_its_connections_are_continued_at_its_owner(url: str) -> None:
    sent = os.urandom(3_000_000)
    mark = hashlib.sha256(sent).hexdigest().encode() + b"\n"
    async with owner(url) as own:
        for _ in range(2):
            assert await own.run("python3", "-c", ASKS, given=sent) == (0, mark, b"")


async def test_it_reaches_neither_the_server_nor_the_host(url: str, tmp_path: Path) -> None:
    secret, port = tmp_path / "secret", url.rpartition(":")[2]
    secret.write_text("hidden")
    tried = [
        f"cat {secret}",
        f"cat {Path(__file__).parents[2] / 'support/workshop_environment.py'}",
        f"exec 3<>/dev/tcp/127.0.0.1/{port}",
        "tr '\\0' '\\n' < /proc/1/environ | grep .",
    ]
    asked = [f"CONNECT 127.0.0.1:{port} HTTP/1.1", f"GET http://127.0.0.1:{port}/-/sessions HTTP/1.1"]
    async with owner(url) as own:
        for command in tried:
            status, printed, _ = await own.run("bash", "-c", command)
            assert (status != 0, printed) == (True, b""), command
        for line in asked:
            talk = f"exec 3<>/dev/tcp/127.0.0.1/{PROXY_PORT}; printf '{line}\\r\\n\\r\\n' >&3; cat <&3"
            _, printed, _ = await own.run("bash", "-c", talk)
            assert printed.startswith(b"HTTP/1.1 403"), printed


def test_only_the_owner_of_a_session_starts_programs_and_only_where_the_author_lets_it() -> None:
    with serving(Server([Workshop, Closed], api_keys=["owner=s3cret", "other=0ther"])) as url:
        raw, key = Raw(url), {"X-API-Key": "s3cret"}
        sid = raw.session("workshop", TASK, headers=key)
        token = path_of(raw, sid, X_API_Key="s3cret").rpartition("/")[2]
        for path in ("/-/program", "/-/program/data"):
            for name in (sid, token):
                assert raw.post(path, {"command": ["true"]}, sid=name).status == 401
                other = {"X-API-Key": "0ther"}
                assert raw.post(path, {"command": ["true"]}, sid=name, headers=other).status == 404
        closed = raw.session("closed", TASK, headers=key)
        answer = raw.post("/-/program", {"command": ["true"]}, sid=closed, headers=key)
        assert (answer.status, "agents=True" in answer.detail) == (404, True)
        for wrong in ("true", [], ["a\0"]):
            assert raw.post("/-/program", {"command": wrong}, sid=sid, headers=key).status == 400
        assert raw.post("/-/program", {"command": ["true"]}, sid=sid, headers=key).events() == [("exit", "0")]


async def test_an_environment_without_a_sandbox_takes_none() -> None:
    with serving(Server([Lab])) as url:
        async with owner(url, "lab") as own:
            with pytest.raises(NotFound, match="no sandbox that takes agents"):
                await own.start("true")


def runs(mark: str) -> bool:
    """Whether a process of the whole machine has this word in its command."""
    found = [each for each in Path("/proc").iterdir() if each.name.isdigit()]
    for each in found:
        try:
            if mark.encode() in (each / "cmdline").read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


@pytest.mark.parametrize("how", ["kills it", "leaves", "ends the session"])
async def test_a_program_ends_with_the_interest_of_its_owner(url: str, how: str) -> None:
    mark = uuid4().hex
    async with owner(url) as own:
        program = await own.start("sh", "-c", f"printf begun; sleep 3600; : {shlex.quote(mark)}", mark)
        assert await program.read() == b"begun"
        assert runs(mark)
        with pytest.raises(BadRequest, match="running already"):
            await own.start("true")
        if how == "kills it":
            program.kill()
            assert await program.wait() is None
            await until(lambda: not runs(mark))
        elif how == "ends the session":
            await own.session.close()
            assert await program.wait() == -9
    await until(lambda: not runs(mark))
    program.kill()


async def test_a_session_takes_a_program_after_another(url: str) -> None:
    async with owner(url) as own:
        program = await own.start("sleep", "3600")
        program.kill()
        await program.wait()

        async def again() -> bool:
            try:
                return (await own.run("echo", "hi"))[1] == b"hi\n"
            except BadRequest:  # the server has not heard yet
                return False

        await until(again)


def test_programs_run_behind_any_server_of_a_cluster(tmp_path: Path) -> None:
    with linked_servers(2, tmp_path, [Workshop]) as servers:
        sid, sent = minted(servers, 1, "workshop", TASK), os.urandom(300_000)

        async def play() -> tuple[int | None, bytes, bytes]:
            async with owner(servers[0].raw.url, sid=sid) as own:
                return await own.run("python3", "-c", ASKS, given=sent)

        status, printed, _ = asyncio.run(play())
        assert (status, len(printed)) == (0, 65)


def test_a_program_waits_for_an_owner_who_does_not_read() -> None:
    prints = "while printf %65536d 0; do printf x >> log; done"
    with serving(Server([Workshop])) as url, closing(Raw(url).connection()) as connection:
        sid = Raw(url).session("workshop", TASK)
        body = json.dumps({"command": ["bash", "-c", prints]})
        connection.request("POST", "/-/program", body, {"X-Session-ID": sid})
        assert connection.getresponse().status == 200
        sizes: list[int] = []

        def stands_still() -> bool:
            found = Raw(url).get(f"/-/api/sandbox/{sid}").json()["files"]
            sizes.extend(each["size"] for each in found if each["path"] == "/work/log")
            return len(sizes) > 30 and sizes[-30] == sizes[-1]

        wait_until(stands_still)
        assert sizes[-1] < 1000  # of 64 KiB each
