"""The sync client: threads, running loops, Ctrl-C, exit and fork."""

import asyncio
import copy
import os
import pickle
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ors import Server
from ors.client import ORS, AsyncORS, Environment, Options, Task
from ors.errors import ToolCallError
from tests.support.environments import Lab
from tests.support.live_server import serving
from tests.support.raw_http import Raw
from tests.support.scripted_server import Reply, scripted
from tests.support.waiting import wait_until

PRELUDE = """
import os, sys, threading
from ors.client import ORS, Task
client = ORS(sys.argv[1])
session = client.environment("lab").session(Task("lab", {"id": sys.argv[2]})).start()
"""


@pytest.fixture
def env(raw: Raw) -> Iterator[Environment]:
    with ORS(raw.url, options=Options(ping_seconds=0.1)) as client:
        yield client.environment("lab")


def new_task() -> Task:
    return Task("lab", {"id": uuid.uuid4().hex})


def test_an_episode_in_ten_lines(env: Environment) -> None:
    task = env.get_task("train", 1)
    with env.session(task) as session:
        assert session.sid
        assert session.task is task
        assert session.get_prompt()[0].type == "text"
        assert "echo" in [tool.name for tool in session.list_tools()]
        output = session.call_tool("reward", {"value": 1.0, "finished": True})
        assert (output.reward, output.finished) == (1.0, True)
        with pytest.raises(ToolCallError, match="finished"):
            session.call_tool("nothing")


def test_a_split_is_iterated_lazily(env: Environment) -> None:
    tasks = env.tasks("train", page_size=2)
    assert next(tasks).task_spec["n"] == 0
    assert [task.task_spec["n"] for task in tasks] == [1, 2, 3, 4]


def test_many_threads_share_one_client(env: Environment) -> None:
    together = threading.Barrier(8)

    def episode(n: int) -> str:
        with env.session(new_task()) as session:
            together.wait(20)
            return session.call_tool("echo", {"text": str(n)}).blocks[0].text  # type: ignore[union-attr]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(episode, range(8))) == [str(n) for n in range(8)]


async def test_it_works_inside_a_running_loop(raw: Raw) -> None:
    assert asyncio.get_running_loop().is_running()
    with ORS(raw.url) as client, client.environment("lab").session(new_task()) as session:
        assert session.call_tool("echo", {"text": "notebook"}).blocks[0].text == "notebook"  # type: ignore[union-attr]


def test_a_session_is_pinged_while_the_caller_thinks(env: Environment) -> None:
    with env.session(new_task()) as session:
        before = session.wrapped.heard
        wait_until(lambda: session.wrapped.heard > before)


def test_a_closed_client_says_so(raw: Raw) -> None:
    client = ORS(raw.url)
    assert client.health() == {"status": "ok"}
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.health()


def test_closing_a_client_ends_its_thread(raw: Raw) -> None:
    client = ORS(raw.url)
    client.health()
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "ors-client")
    client.close()
    assert not thread.is_alive()


def test_dropping_a_client_ends_its_thread(raw: Raw) -> None:
    client = ORS(raw.url)
    client.health()
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "ors-client")
    del client
    thread.join(20)
    assert not thread.is_alive()


def test_the_clients_own_callbacks_cannot_wait_for_it(env: Environment) -> None:
    caught: list[Exception] = []

    def callback(task_id: str) -> None:
        try:
            env.list_splits()
        except RuntimeError as error:
            caught.append(error)

    with env.session(new_task()) as session:
        session.call_tool("nothing", on_task_id=callback)
    assert "wait for itself" in str(caught[0])


def script(raw: Raw, code: str, key: str = "") -> "subprocess.Popen[str]":
    command = [sys.executable, "-X", "dev", "-c", PRELUDE + code, raw.url, key or uuid.uuid4().hex]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_script_that_closes_nothing_ends_at_once(raw: Raw) -> None:
    out, err = script(raw, "print(session.call_tool('nothing').blocks[0].text)").communicate(timeout=30)
    assert out == "nothing\n"
    assert "Traceback" not in err


def test_ctrl_c_stops_a_call_and_the_client_goes_on(raw: Raw) -> None:
    key = uuid.uuid4().hex
    code = """
try:
    session.call_tool("hold_async", on_task_id=lambda _: print("running", flush=True))
except KeyboardInterrupt:
    client.health()
    print("interrupted", len(session.wrapped._pending), flush=True)
session.close()
"""
    process = script(raw, code, key)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    Lab.gates[f"{key}.hold"].set()
    assert out == "interrupted 0\n", err
    assert process.returncode == 0


def test_ctrl_c_that_does_not_wake_the_waiting_thread_is_seen(raw: Raw) -> None:
    # As one that comes just before the thread begins to wait.
    code = """
import signal
try:
    interrupt = lambda _: signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    session.call_tool("stay", on_task_id=interrupt)
except KeyboardInterrupt:
    print("interrupted")
session.close()
"""
    process = script(raw, code)
    assert process.communicate(timeout=30)[0] == "interrupted\n"
    assert process.returncode == 0


def test_ctrl_c_in_a_session_ends_it(raw: Raw) -> None:
    key = uuid.uuid4().hex
    code = """
with session:
    session.call_tool("stay", on_task_id=lambda _: print("running", flush=True))
"""
    process = script(raw, code, key)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in err
    for _ in range(200):
        if Lab.counts[f"{key}.teardown"]:
            break
        threading.Event().wait(0.05)
    assert Lab.counts[f"{key}.teardown"] == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_client_made_before_a_fork_says_so(raw: Raw) -> None:
    code = """
import warnings
warnings.simplefilter("ignore")
pid = os.fork()
if pid == 0:
    try:
        client.health()
    except RuntimeError as error:
        print(error, flush=True)
    print(ORS(sys.argv[1]).health(), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(client.health())
"""
    out, err = script(raw, code).communicate(timeout=30)
    first, second, third = out.splitlines()
    assert "before a fork" in first
    assert second == third == "{'status': 'ok'}", err


HAMMER = """
import random, signal, time
chance = random.Random(7)

def interrupt(after):
    time.sleep(after)
    os.kill(os.getpid(), signal.SIGINT)

caught = 0
for _ in range(150):
    timer = threading.Thread(target=interrupt, args=(chance.random() * 0.004,))
    try:
        with ORS(sys.argv[1]) as client:
            inner = client.environment("lab").session(Task("lab", {"id": sys.argv[2]}))
            if chance.random() < 0.5:
                with inner:
                    timer.start()
            else:
                inner.start()
                try:
                    timer.start()
                finally:
                    inner.close()
        timer.join()
    except KeyboardInterrupt:
        caught += 1
session.close()
print(caught)
"""


def test_ctrl_c_while_sessions_close_leaves_none_of_them_on_the_server() -> None:
    with serving(Server([Lab])) as url:
        out, err = script(Raw(url), HAMMER).communicate(timeout=120)
        assert out == "150\n", err
        assert Raw(url).get("/-/sessions").json()["total"] == 0


async def test_a_second_ctrl_c_ends_the_wait_for_a_session_that_does_not_close() -> None:
    code = """
try:
    with session:
        print("closing", flush=True)
except KeyboardInterrupt:
    try:
        print("first", flush=True)
        client.close()
    except KeyboardInterrupt:
        print("second", flush=True)
"""
    async with scripted() as stuck:
        stuck.on("/delete", Reply(b"", hold=asyncio.Event()))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PRELUDE + code, stuck.url, "key", stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"closing\n"
        await stuck.until_asked("/delete")
        process.send_signal(signal.SIGINT)
        assert await process.stdout.readline() == b"first\n"
        process.send_signal(signal.SIGINT)
        assert await process.stdout.read() == b"second\n"
        assert await process.wait() == 0


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("made", [ORS, AsyncORS])
def test_what_has_connections_says_why_it_cannot_be_copied(made: Any, copied: Callable[[Any], Any]) -> None:
    client = made("http://127.0.0.1:9")
    environment = client.environment("lab")
    for each in (client, client.environments, environment, environment.attach("sid")):
        with pytest.raises(TypeError, match=r"has open connections, .* make a client in each process"):
            copied(each)
