"""`ors serve --workers`: processes that share a port, die, are replaced and end."""

import asyncio
import http.client
import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from ors.client import ORS, AsyncORS, AsyncSession
from ors.cluster.servers import MOVE_AFTER
from ors.errors import ORSError, SessionLost
from tests.support.call_ledger import Ledger
from tests.support.commands import run
from tests.support.raw_http import Answer
from tests.support.waiting import until, wait_until
from tests.support.worker_command import YARD, Crew, alive, crew

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="workers need a POSIX system"),
]

on_three = pytest.mark.xdist_group("three workers")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    with crew(tmp_path_factory.mktemp("crew"), 3) as made:
        yield made


@on_three
def test_sessions_live_in_several_processes_and_are_found_on_every_connection(three: Crew) -> None:
    sids = {slot: three.session(slot) for slot in range(3)}
    pids = set()
    for sid in sids.values():
        seen = {
            three.raw.call(sid, "note", {"name": "x"}, env="yard").result()["output"]["blocks"][0]["text"]
            for _ in range(12)  # a new connection each: the system spreads them over the workers
        }
        assert len(seen) == 1
        pids |= seen
    assert len(pids) == 3
    told = three.raw.get("/-/sessions").json()
    assert set(sids.values()) <= {session["sid"] for session in told["sessions"]}


@on_three
def test_forks_live_in_the_process_of_the_first_and_are_found_on_every_connection(three: Crew) -> None:
    for slot in range(3):
        sid = three.session(slot)
        process = three.told(sid, "note", name="first")
        for _ in range(4):  # a new connection each
            with ORS(three.url) as client:
                forks = client.environment("yard").attach(sid).fork(3)
                assert {three.told(str(fork.sid), "note", name="fork") for fork in forks} == {process}
                for fork in forks:
                    fork.close()


@on_three
def test_an_id_that_a_client_made_is_found_on_every_connection(three: Crew) -> None:
    assert three.raw.post("/create", {"task_spec": {}}, sid="abc-123").status == 200
    for _ in range(12):
        assert three.raw.post("/ping", sid="abc-123").status == 200
    assert three.raw.post("/delete", sid="abc-123").status == 200


def noted(connection: http.client.HTTPConnection, sid: str) -> int:
    """The process that a session lives in, asked over that connection."""
    body = json.dumps({"name": "note", "input": {"name": "noted"}})
    connection.request("POST", "/yard/call", body, {"X-Session-ID": sid})
    response = connection.getresponse()
    result = Answer(response.status, {}, response.read()).result()
    return int(result["output"]["blocks"][0]["text"])


@on_three
def test_a_tool_that_holds_the_interpreter_of_one_worker_does_not_hold_up_another(
    three: Crew, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.write_bytes(b"\0")
    busy, free = three.session(0), three.session(1)
    with closing(three.raw.connection()) as connection, ThreadPoolExecutor(1) as pool:
        for _ in range(2 * MOVE_AFTER):
            pid = noted(connection, free)  # at the end, the connection is at the worker of this session
        hogging = pool.submit(three.told, busy, "hog", name="hogging", gate=str(gate))
        while "hogging" not in three.traces():
            assert not hogging.done()
        for _ in range(5):
            assert noted(connection, free) == pid
        with gate.open("r+b") as file:  # in place: a file that is cut short takes its readers' memory away
            file.write(b"\1")
        assert hogging.result() == "opened"  # it ran until now, and has not given up before


async def stays(client: AsyncORS, session: AsyncSession, name: str) -> tuple[str, float]:
    """What a client sees of a call that never ends, and when."""
    try:
        await session.call_tool("stay", {"name": name})
    except ORSError as error:
        return f"{type(error).__name__}: {error}", time.monotonic()
    return "ended", time.monotonic()


async def test_of_fifty_calls_those_of_a_killed_worker_end_at_once_and_no_tool_runs_twice(
    tmp_path: Path,
) -> None:
    with crew(tmp_path, 2) as two:
        pids = two.pids()
        async with AsyncORS(two.url) as client:
            env = client.environment("yard")
            sessions = [env.session(split="train", index=n % 10) for n in range(50)]
            for session in sessions:
                await session.__aenter__()
            calls = [
                asyncio.create_task(stays(client, session, f"c{n}")) for n, session in enumerate(sessions)
            ]
            await until(lambda: sum(name.startswith("c") for name in two.traces()) == 50)
            lost = [n for n, session in enumerate(sessions) if str(session.sid).startswith("0001")]
            killed = time.monotonic()
            os.kill(pids[1], signal.SIGKILL)
            done, going = await asyncio.wait([calls[n] for n in lost], timeout=20)
            assert not going
            assert 10 <= len(lost) <= 40
            assert {call.result()[0].partition(":")[0] for call in done} == {"SessionLost"}
            slowest = max(call.result()[1] for call in done) - killed
            assert slowest < 2.0  # 0.05 s on a quiet machine: docs/cluster.md
            assert not [n for n in range(50) if n not in lost and calls[n].done()]
            async with env.session(split="train", index=0) as fresh:
                assert (await fresh.call_tool("note", {"name": "fresh"})).blocks
            with pytest.raises(SessionLost):
                await sessions[lost[0]].call_tool("note", {"name": "late"})
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            for n, session in enumerate(sessions):
                if n not in lost:
                    await session.__aexit__(None, None, None)
        traces = [name for name in two.traces() if name.startswith("c")]
        assert sorted(traces) == sorted(f"c{n}" for n in range(50))
        two.until(lambda: two.slots() == {0, 1})
        assert two.pids()[1] != pids[1]
        assert two.stop() == 0


async def test_workers_killed_at_random_run_no_tool_twice(tmp_path: Path) -> None:
    with crew(tmp_path, 3) as three:
        ledger, chance = Ledger(three.url, tmp_path / "traces", "k"), random.Random(8)
        ledger.play(8)
        for _ in range(6):
            await ledger.more(20)
            pids = await asyncio.to_thread(three.living)
            os.kill(chance.choice(pids), signal.SIGKILL)
        await ledger.more(20)
        await ledger.settle()


async def episodes(url: str, stop: asyncio.Event, player: int) -> int:
    """Episodes one after the other, none of which may fail; gives how many."""
    count = 0
    async with AsyncORS(url) as client:
        env = client.environment("yard")
        while not stop.is_set():
            async with env.session(split="train", index=count % 10) as session:
                for n in range(5):
                    await session.call_tool("wait", {"name": f"e{player}.{count}.{n}", "seconds": 0.01})
            count += 1
    return count


async def test_all_workers_are_replaced_under_load_without_a_failed_call(tmp_path: Path) -> None:
    with crew(tmp_path, 2) as two:
        before = two.pids()
        stop = asyncio.Event()
        load = [asyncio.create_task(episodes(two.url, stop, n)) for n in range(8)]
        long = two.session(0)
        two.process.send_signal(signal.SIGHUP)
        while len(set(before) & set(await asyncio.to_thread(two.pids))) > 0:
            assert not any(task.done() for task in load)
        # A session of a worker that is replaced goes on there.
        answer = await asyncio.to_thread(two.raw.call, long, "note", {"name": "long"}, "yard")
        assert answer.result()["output"]["blocks"][0]["text"] == str(before[0])
        assert (await asyncio.to_thread(two.raw.post, "/delete", sid=long)).status == 200
        await until(lambda: not any(alive(pid) for pid in before))
        stop.set()
        counts = await asyncio.gather(*load)
        assert min(counts) > 0
        ran = sorted(name for name in two.traces() if name.startswith("e"))
        assert ran == sorted(f"e{k}.{i}.{n}" for k in range(8) for i in range(counts[k]) for n in range(5))
        assert two.stop() == 0


def test_a_drain_deadline_ends_a_replaced_worker(tmp_path: Path) -> None:
    with crew(tmp_path, 2, "--drain-seconds", "0.2", "--grace-seconds", "0.1") as two:
        before = two.pids()
        sid = two.session(0)
        with two.raw.opened(sid, "stay", {"name": "z"}, env="yard") as call:
            two.process.send_signal(signal.SIGHUP)
            assert "shutting down" in call.rest().error()
        two.until(lambda: not any(alive(pid) for pid in before))
        assert two.raw.post("/ping", sid=sid).status == 410


@pytest.mark.untraced
def test_a_worker_that_has_grown_is_replaced_and_one_that_has_grown_much_is_killed(tmp_path: Path) -> None:
    with crew(tmp_path, 2, "--max-worker-memory", "300M", "--drain-seconds", "0") as two:
        first, second = two.pids()
        two.raw.call(two.session(0), "grow", {"megabytes": 350}, env="yard")
        with suppress(ConnectionError, http.client.HTTPException):  # killed in the middle of the call
            two.raw.call(two.session(1), "grow", {"megabytes": 900}, env="yard")
        two.until(lambda: not alive(first) and not alive(second))
        two.until(lambda: two.slots() == {0, 1})


def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    with crew(tmp_path, 2) as two:
        pids = two.pids()
        two.process.kill()
        wait_until(lambda: not any(alive(pid) for pid in pids))


def test_a_worker_that_keeps_dying_is_started_after_longer_and_longer_pauses(tmp_path: Path) -> None:
    impatient = "from ors.cluster import supervisor; supervisor.LONGEST_BACKOFF = 0.5"
    impatient += "; from ors.cli import main; main()"
    with crew(tmp_path, 2, command=[sys.executable, "-c", impatient]) as two:
        known, kept = set(two.living()), two.session(0)
        first, victim = two.pids()
        for pause in ("0.1", "0.2", "0.4", "0.5", "0.5"):
            killed = time.monotonic()
            os.kill(victim, signal.SIGKILL)
            death = rf"Worker 1 \(process {victim}\) exited with -9; restarting in (.*) s"
            two.until(lambda: two.said(death) != [])  # noqa: B023
            assert two.said(death) == [pause]
            assert int(two.told(kept, "note", name="kept")) == first
            two.until(lambda: bool(set(two.living()) - known))
            assert time.monotonic() - killed >= float(pause)  # at the least: a slow machine is no failure
            (victim,) = set(two.living()) - known
            known.add(victim)
        two.until(lambda: two.slots() == {0, 1})
        assert two.pids() == [first, victim]


def test_what_cannot_start_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import ors\nraise RuntimeError('no luck')\n")
    done = run("serve", str(tmp_path / "broken.py"), "--workers", "2", "--port", "0")
    assert done.code == 3
    assert done.err.count("no luck") == 1
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run("serve", YARD, "--workers", "2", "--port", port, env={"YARD": ""})
        assert (done.code, "the port is in use" in done.err) == (3, True)


@on_three
def test_a_crew_on_a_port_does_not_let_another_share_it(three: Crew) -> None:
    done = run("serve", YARD, "--workers", "2", "--port", str(three.raw.port), env={"YARD": ""})
    assert (done.code, "the port is in use" in done.err) == (3, True)


@on_three
def test_the_sync_client_works_through_workers(three: Crew) -> None:
    with ORS(three.url) as client, client.environment("yard").session(split="train", index=3) as session:
        assert session.call_tool("note", {"name": "sync"}).blocks[0].type == "text"
