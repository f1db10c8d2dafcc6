"""openreward's own SDK, unmodified, with sandboxes of ours behind it."""

import asyncio
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ors import Limits
from ors.openreward.hosting import Hosting
from ors.openreward.serving import sandbox_server
from tests.support.commands import running
from tests.support.cutting_proxy import listening, pump
from tests.support.live_server import app_of, serving
from tests.support.side_venvs import OPENREWARD, SCRIPTS, environ
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.xdist_group("compat")]


def command(url: str, what: str) -> tuple[list[str], dict[str, str]]:
    told = {"OPENREWARD_SESSION_URL": url, "OPENREWARD_API_KEY": "s3cret"}
    more = environ(**told, OPENREWARD_DISABLE_UPDATE_CHECK="1")
    return [OPENREWARD.python(), str(SCRIPTS / "their_sandboxes.py"), what], more


def played(url: str, what: str) -> None:
    words, env = command(url, what)
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout + done.stderr


def test_their_client_works_over_every_endpoint() -> None:
    keys = {"ORS_API_KEYS": "team=s3cret"}
    with running("sandboxes", "--port", "0", "--host-root", env=keys) as server:
        url = server.url()
        played(url, "everything")
        played(url, "sync")
        assert server.stop().code == 0


def test_their_client_takes_up_streams_that_were_cut_and_the_command_runs_once() -> None:
    cut: list[bytes] = []

    async def back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
            if b"event: task_id" in chunk and b"event: end" not in chunk and len(cut) < 2:
                cut.append(chunk)
                return

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = await asyncio.open_connection(target.hostname, target.port)
        there = asyncio.create_task(pump(reader, server[1]))
        try:
            await back(server[0], writer)
        finally:
            there.cancel()
            for each in (writer, server[1]):
                each.transport.abort()

    with serving(sandbox_server(Hosting(host_root=True))) as url:
        target = urlsplit(url)
        with listening(proxy) as between:
            played(between, "cut")
    assert len(cut) == 2  # of the creation, and of the command


def test_the_sandbox_of_a_client_that_was_killed_ends_while_its_command_runs() -> None:
    server = sandbox_server(Hosting(host_root=True), limits=Limits(idle_seconds=1))
    with serving(server) as url:
        words, env = command(url, "forever")
        with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            client.stdout.readline()
            (session,) = app_of(server).sessions
            assert session.episode is not None
            process = Path(f"/proc/{session.episode.sandbox.cell.pid}")
            client.kill()
        wait_until(lambda: not process.exists(), "the sandbox has ended")
