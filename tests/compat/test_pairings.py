"""All pairings: our client on their servers, their clients on our server."""

import asyncio
import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import ors
from ors import Server
from ors.client import ORS, AsyncORS, Environment, Options
from ors.errors import CallOutcomeUnknown, SessionLost, ToolCallError, ToolFailed
from tests.compat.scripts.abacus import made
from tests.compat.scripts.their_episode import played
from tests.support.cutting_proxy import Cutting, listening
from tests.support.live_server import serving
from tests.support.side_venvs import OPENREWARD, ORS_SDK, SCRIPTS, Package, environ

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
BOTH = pytest.mark.parametrize("package", [ORS_SDK, OPENREWARD], ids=lambda package: package.name)
STARTING = Options(retries=200, backoff_limit_seconds=0.2)


@contextmanager
def their_server(package: Package) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [package.python(), str(SCRIPTS / "abacus.py"), package.module, str(port)]
    process = subprocess.Popen(command, env=environ(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        with ORS(url, options=STARTING) as client:
            client.health()
        yield url
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module", params=[ORS_SDK, OPENREWARD], ids=lambda package: package.name)
def theirs(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a server of the field."""
    with their_server(request.param) as url:
        yield url


@pytest.fixture
def env(theirs: str) -> Iterator[Environment]:
    with ORS(theirs) as client:
        yield client.environment("abacus")


def check(found: dict[str, object]) -> None:
    """What an episode must have seen, whoever played it on whosever server."""
    tools = {"add", "drop", "say", "wait", "whisper"}
    assert found["splits"] == ["train", "test"]
    assert (found["tasks"], found["num_tasks"], found["range"]) == (7, 7, [5, 6])
    assert found["task"] == {"start": 3, "split": "train"}
    assert set(found["tools"]) == set(found["session_tools"]) == tools  # type: ignore[call-overload]
    assert found["openai"] == len(tools)
    assert found["prompt"] == "Start at 3 – ends at ten."
    assert found["by_index"] == "Start at 2 – ends at ten."
    assert found["said"] is True
    assert found["secret"] == "sk-1"
    assert found["first"] == 0.0
    assert found["last"] == [1.0, True, {"total": 10}, "10"]


@pytest.mark.xdist_group("compat")
def test_our_client_plays_an_episode_on_their_server(env: Environment) -> None:
    found = played(env)
    check(found)
    assert found["dropped"][0] == "ToolFailed"
    assert "beads everywhere\nreally" in found["dropped"][1]
    assert found["unknown"][0] == found["invalid"][0] == "ToolCallError"


@pytest.mark.xdist_group("compat")
@BOTH
def test_their_client_plays_an_episode_on_our_server(package: Package) -> None:
    with serving(Server([made(ors)])) as url:
        command = [package.python(), str(SCRIPTS / "their_episode.py"), package.name, url]
        urls = {"OPENREWARD_API_URL": url, "OPENREWARD_SESSION_URL": url}
        told = subprocess.run(command, env=environ(**urls), capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout.splitlines()[-1])
    check(found)
    assert "beads everywhere" in found["dropped"][1]
    assert found["unknown"][0] == found["invalid"][0] == "ToolCallError"


@pytest.mark.xdist_group("compat")
def test_a_session_ends_on_their_server_when_we_leave_it(env: Environment) -> None:
    with env.session(split="train", index=0) as session:
        assert session.sid is not None
        session.ping()
    with pytest.raises(SessionLost):
        env.attach(session.sid).ping()


@pytest.mark.xdist_group("compat")
def test_a_split_of_theirs_is_iterated_in_pages(env: Environment) -> None:
    assert [task.task_spec["start"] for task in env.tasks("train", page_size=3)] == list(range(7))


@pytest.mark.xdist_group("compat")
async def test_a_call_on_their_server_is_rejoined_when_its_stream_breaks(theirs: str) -> None:
    network = Cutting(theirs, share=0)
    with listening(network.serve) as through:
        async with (
            AsyncORS(through) as client,
            client.environment("abacus").session(split="train", index=1) as session,
        ):
            begun = asyncio.Event()
            call = asyncio.create_task(session.call_tool("wait", on_task_id=lambda _: begun.set()))
            await begun.wait()
            await session._remote.transport.close()
            output = await call
            assert output.blocks[0].text == "101"  # type: ignore[union-attr]
            assert network.connections > 1


@pytest.mark.xdist_group("compat")
async def test_calls_on_their_server_run_at_most_once_when_connections_break(theirs: str) -> None:
    network = Cutting(theirs)
    options = Options(keepalive_seconds=0, backoff_seconds=0.001, retries=20)
    known = unknown = 0
    with listening(network.serve) as through:
        async with AsyncORS(through, options=options) as client:
            session = await client.environment("abacus").session(split="train", index=0).start()
            total = 0
            for _ in range(60):
                try:
                    output = await session.call_tool("add", {"value": 1000})
                except CallOutcomeUnknown:
                    unknown += 1
                    continue
                known += 1
                seen = dict(output.metadata or {})["total"]
                assert isinstance(seen, int)
                # It has grown by this call, and by those of unknown outcome that did run.
                assert total + 1000 <= seen <= 1000 * (known + unknown)
                total = seen
            await session.close()
    assert known > 20
    assert unknown > 0


@pytest.mark.xdist_group("compat")
def test_their_refusals_are_our_errors(env: Environment) -> None:
    with env.session(split="train", index=0) as session:
        with pytest.raises(ToolCallError):
            session.call_tool("nope")
        with pytest.raises(ToolFailed):
            session.call_tool("drop")
        assert session.call_tool("add", {"value": 1}).reward == 0.0
