"""`session.fork`: open sessions of their own, once, and none left when it is given up."""

import asyncio
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import ors.testing
from ors import Limits, Server
from ors.client import ORS, AsyncORS, AsyncSession, Options, Task
from ors.errors import (
    BadRequest,
    NotFound,
    ServerFailed,
    SessionLost,
    TransportError,
    Unavailable,
)
from tests.support.board_environment import AsyncForking, Board, Forking
from tests.support.cutting_proxy import Cutting, listening
from tests.support.live_server import serving
from tests.support.raw_http import Raw
from tests.support.scripted_server import Reply, answer, head, scripted
from tests.support.waiting import until

QUICK = Options(backoff_seconds=0.001, backoff_limit_seconds=0.01, retries=3, cleanup_seconds=0.2)
MOMENTS = 40


@pytest.fixture
def raw() -> Iterator[Raw]:
    with serving(Server([Board, Forking, AsyncForking])) as url:
        yield Raw(url)


def total(raw: Raw) -> int:
    return int(raw.get("/-/sessions").json()["total"])


def new_task(env: str = "board", **task: Any) -> Task:
    return Task(env, {"id": uuid.uuid4().hex, **task})


async def moved(session: AsyncSession, name: str) -> str:
    return (await session.call_tool("move", {"name": name})).blocks[0].text  # type: ignore[union-attr]


async def test_forks_are_open_independent_and_end_with_their_block(raw: Raw) -> None:
    async with AsyncORS(raw.url) as client:
        task = new_task()
        async with client.environment("board").session(task, {"key": "sk"}) as first:
            await moved(first, "a")
            forks = await first.fork(3)
            assert [fork.task for fork in forks] == [task] * 3
            assert all(fork.kept for fork in forks)
            assert [await moved(fork, str(n)) for n, fork in enumerate(forks)] == ["a,0", "a,1", "a,2"]
            assert await moved(first, "b") == "a,b"
            async with forks[0]:
                assert (await forks[0].call_tool("secret")).metadata == {"key": "sk"}
            with pytest.raises(SessionLost):
                await moved(forks[0], "c")
            await forks[1].close()
        assert await moved(forks[2], "d") == "a,2,d"
        await forks[2].close()
    assert total(raw) == 0


async def test_the_messages_of_a_fork_begin_with_those_of_the_first_session(raw: Raw) -> None:
    async with AsyncORS(raw.url) as client, client.environment("board").session(new_task()) as first:
        await moved(first, "a")
        before = await first.messages("openai-chat")
        (fork,) = await first.fork(1)
        await moved(first, "b")
        async with fork:
            assert await fork.messages("openai-chat") == before
            await moved(fork, "c")
            after = await fork.messages("openai-chat")
    assert after[: len(before)] == before
    assert "a,c" in str(after[len(before) :])
    assert "call_2" in str(after[len(before) :])


async def test_forks_are_pinged_on_their_own() -> None:
    limits = Limits(idle_seconds=0.5)
    server = Server([Board], limits=limits)
    with serving(server) as url:
        async with AsyncORS(url, options=Options(ping_seconds=0.1)) as client:
            first = await client.environment("board").session(new_task()).start()
            (fork,) = await first.fork(1)
            heard = fork.heard
            await until(lambda: fork.heard != heard, "the fork was pinged")
            await first.close()
            await fork.close()


async def test_an_attached_session_can_be_forked_and_its_forks_end_with_their_block(raw: Raw) -> None:
    async with AsyncORS(raw.url) as client:
        environment = client.environment("board")
        first = await environment.session(split="train", index=1).start()
        assert first.sid is not None
        async with environment.attach(first.sid) as attached:
            (fork,) = await attached.fork(1)
        async with fork:
            assert (await fork.get_prompt())[0].text == "task 1"  # type: ignore[union-attr]
        assert total(raw) == 1
        await first.close()


def test_the_sync_client_forks_too(raw: Raw) -> None:
    with ORS(raw.url) as client, client.environment("board").session(split="train", index=1) as first:
        first.call_tool("move", {"name": "a"})
        one, two = first.fork(2)
        assert (one.split, one.index) == ("train", 1)
        with one, two:
            assert one.call_tool("move", {"name": "b"}).blocks[0].text == "a,b"  # type: ignore[union-attr]
            assert two.call_tool("move", {"name": "c"}).blocks[0].text == "a,c"  # type: ignore[union-attr]
        assert total(raw) == 1


async def test_an_environment_is_forked_in_process_too() -> None:
    async with ors.testing.session(Board, {"n": 1}) as session:
        await moved(session, "a")
        async with (await session.fork(1))[0] as fork:
            assert await moved(fork, "b") == "a,b"
        assert await moved(session, "c") == "a,c"


async def test_refusals_are_errors_that_say_what_to_do(raw: Raw) -> None:
    async with AsyncORS(raw.url) as client:
        session = await client.environment("board").session(new_task(lock=True)).start()
        with pytest.raises(ServerFailed, match=r"Board\.lock cannot be copied .*: define fork\(\)"):
            await session.fork(2)
        with pytest.raises(BadRequest, match="n: "):
            await session.fork(0)
        await session.call_tool("finish")
        with pytest.raises(BadRequest, match="has finished") as refused:
            await session.fork(1)
        assert refused.value.reason == "episode_finished"
        await asyncio.to_thread(raw.post, "/delete", sid=session.sid)
        with pytest.raises(SessionLost):
            await session.fork(1)


async def test_a_full_server_is_asked_again_until_there_is_no_time_left() -> None:
    with serving(Server([Board], limits=Limits(sessions=2))) as url:
        async with AsyncORS(url, options=Options(setup_seconds=1.2)) as client:
            session = await client.environment("board").session(new_task()).start()
            (fork,) = await session.fork(1)
            with pytest.raises(Unavailable, match="at its session limit"):
                await session.fork(1)
            await fork.close()
            (fork,) = await session.fork(1)
            await asyncio.gather(fork.close(), session.close())


@pytest.mark.parametrize("status", [404, 405])
async def test_a_server_without_forks_is_named_as_such(status: int) -> None:
    async with scripted() as script:
        script.on("/-/fork", answer({"detail": "Not Found"}, status))
        client = AsyncORS(script.url, options=QUICK)
        session = await client.environment("env").session(Task("env", {})).start()
        with pytest.raises(NotFound, match="the server cannot fork sessions"):
            await session.fork(2)
        assert session.kept
        await client.close()


@pytest.mark.parametrize("body", [{}, {"sids": "s1"}, {"sids": [1]}, {"sids": None}, []])
async def test_an_answer_without_ids_is_an_error(body: Any) -> None:
    async with scripted() as script:
        script.on("/-/fork", answer(body))
        client = AsyncORS(script.url, options=QUICK)
        session = await client.environment("env").session(Task("env", {})).start()
        with pytest.raises(ServerFailed):
            await session.fork(2)
        await client.close()


@pytest.mark.parametrize(
    ("sids", "opened"),
    [
        ([], []),
        (["s2"], ["s2"]),
        (["s2", "s2"], ["s2"]),
        (["s2", "s3", "s4"], ["s2", "s3", "s4"]),
        (["s2", "s1"], ["s2"]),
        (["s2", 3], ["s2"]),
        (["s2", ["s3"]], ["s2"]),
        (["s2", None], ["s2"]),
        (["s2", ""], ["s2"]),
        (["s2", "s3\r\nX-API-Key: k"], ["s2"]),
        (["s2", "日"], ["s2"]),
        (["s2", "x" * 257], ["s2"]),
    ],
)
async def test_another_number_of_new_ids_is_an_error_and_what_was_opened_is_deleted(
    sids: list[Any], opened: list[str]
) -> None:
    async with scripted() as script:
        script.on("/-/fork", answer({"sids": sids}))
        client = AsyncORS(script.url, options=QUICK)
        session = await client.environment("env").session(Task("env", {})).start()
        with pytest.raises(ServerFailed, match=r"the server's answer to fork\(2\) is not 2 new session ids"):
            await session.fork(2)
        assert session.kept
        await client.close()
        assert [request.headers["x-session-id"] for request in script.asked("/delete")] == opened


async def test_a_hundred_thousand_ids_are_an_error_and_no_flood_of_deletions() -> None:
    async with scripted() as script:
        script.on("/-/fork", answer({"sids": [f"f{n}" for n in range(100_000)]}))
        client = AsyncORS(script.url, options=QUICK)
        session = await client.environment("env").session(Task("env", {})).start()
        with pytest.raises(ServerFailed, match="not 2 new session ids"):
            await session.fork(2)
        await client.close()
        assert 0 < len(script.asked("/delete")) < 100_000
        assert script.connections <= 2


async def test_a_lost_answer_is_asked_for_again_with_the_same_key() -> None:
    async with scripted(ours=True) as script:
        lost = Reply(head(200, {"Content-Type": "application/json"}, 50), cut=True)
        script.on("/-/fork", lost, answer({"sids": ["s2", "s3"]}))
        client = AsyncORS(script.url, options=QUICK)
        session = await client.environment("env").session(Task("env", {})).start()
        assert [fork.sid for fork in await session.fork(2)] == ["s2", "s3"]
        assert len({request.headers["idempotency-key"] for request in script.asked("/-/fork")}) == 1
        await client.close()


async def test_forks_through_connections_that_break_are_made_once(raw: Raw) -> None:
    cutting = Cutting(raw.url)
    with listening(cutting.serve) as url:
        options = Options(backoff_seconds=0.001, backoff_limit_seconds=0.01, retries=50, keepalive_seconds=0)
        async with AsyncORS(url, options=options) as client:
            session = await client.environment("board").session(new_task()).start()
            made = []
            for _ in range(30):
                made += await session.fork(2)
            assert cutting.cut > 0
            await until(lambda: total(raw) == 61)
            await asyncio.gather(*(fork.close() for fork in made))
            await session.close()
    assert total(raw) == 0


# ── Given up ─────────────────────────────────────────────────────────────────────────────────────


async def cancelled(work: "asyncio.Task[Any]") -> None:
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_a_fork_cancelled_at_any_moment_leaves_no_session(raw: Raw) -> None:
    async with AsyncORS(raw.url) as client, client.environment("board").session(new_task()) as session:
        made = 0
        for moment in range(MOMENTS):
            forking = asyncio.create_task(session.fork(4))
            for _ in range(moment):
                await asyncio.sleep(0)
            for _ in range(moment % 3):
                await asyncio.to_thread(raw.get, "/health")
            if forking.done():
                made += 1
                await asyncio.gather(*(fork.close() for fork in await forking))
            else:
                await cancelled(forking)
            assert total(raw) == 1
        assert made < MOMENTS


async def test_a_fork_cancelled_while_it_waits_is_undone_by_the_server(raw: Raw) -> None:
    async with AsyncORS(raw.url, options=QUICK) as client:
        task = new_task("asyncforking", stay=2)
        session = await client.environment("asyncforking").session(task).start()
        forking = asyncio.create_task(session.fork(3))
        await until(lambda: Board.counts[f"{task.task_spec['id']}.fork"] == 2)
        await cancelled(forking)
        await until(lambda: Board.counts[f"{task.task_spec['id']}.teardown"] == 1)
        assert total(raw) == 1
        assert await moved(session, "a") == "a"
        await session.close()


async def test_a_session_that_is_lost_ends_the_fork_that_waits(raw: Raw) -> None:
    async with AsyncORS(raw.url, options=QUICK) as client:
        task = new_task("asyncforking", stay=1)
        session = await client.environment("asyncforking").session(task).start()
        forking = asyncio.create_task(session.fork(1))
        await until(lambda: Board.counts[f"{task.task_spec['id']}.fork"] == 1)
        session.lose("gone for the test")
        with pytest.raises(SessionLost, match="gone for the test"):
            await forking
        await until(lambda: raw.get("/-/sessions").json()["sessions"][0]["running"] == 0)
        assert total(raw) == 1


INTERRUPTED = """
import signal, sys
from ors.client import ORS, Task
signal.signal(signal.SIGALRM, signal.default_int_handler)
client = ORS(sys.argv[1])
session = client.environment("board").session(Task("board", {})).start()
interrupted = 0
for moment in range(1, 61):
    forks = []
    try:
        signal.setitimer(signal.ITIMER_REAL, moment * 0.0002)
        forks = session.fork(3)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
    for fork in forks:
        fork.close()
session.close()
client.close()
print(interrupted)
"""


def test_ctrl_c_at_any_moment_of_a_fork_leaves_no_session(raw: Raw) -> None:
    command = [sys.executable, "-c", INTERRUPTED, raw.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
    assert total(raw) == 0


FORKING = """
import sys
from ors.client import ORS, Task
task = Task("asyncforking", {"id": sys.argv[2], "stay": 3})
session = ORS(sys.argv[1]).environment("asyncforking").session(task)
session.start().fork(5)
"""


async def test_a_client_that_is_killed_in_the_middle_leaves_only_the_first_session(raw: Raw) -> None:
    id = uuid.uuid4().hex
    with subprocess.Popen([sys.executable, "-c", FORKING, raw.url, id]) as process:
        await until(lambda: Board.counts[f"{id}.fork"] == 3)
        process.send_signal(signal.SIGKILL)
    await until(lambda: Board.counts[f"{id}.teardown"] == 2)
    assert total(raw) == 1


async def test_a_server_that_is_not_there_is_a_transport_error() -> None:
    with serving(Server([Board])) as url:
        client = AsyncORS(url, options=QUICK)
        session = await client.environment("board").session(new_task()).start()
    with pytest.raises(TransportError):
        await session.fork(1)
    await client.close()
