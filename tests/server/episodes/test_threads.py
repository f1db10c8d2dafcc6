"""Threads for authors' code: what is refused or given up before it began never runs."""

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from ors import Server
from ors.server.episodes.threads import Executor, Threads
from ors.server.observe.events import Event
from tests.support.environments import Lab
from tests.support.live_server import app_of, serving
from tests.support.raw_http import Raw
from tests.support.threads import no_new_thread
from tests.support.waiting import until, wait_until

CALLS = 12
SERVER = textwrap.dedent(
    """
    import resource, sys, threading
    sys.path.insert(0, {root!r})
    from ors import Environment, Limits, Server, TextBlock, ToolOutput, tool

    gate = threading.Event()
    begun = []

    def said(text):
        return ToolOutput(blocks=[TextBlock(text=text)])

    class Few(Environment):
        def teardown(self):
            print("torn down", self.task_spec.get("n"), flush=True)

        def get_prompt(self):
            return [TextBlock(text="Hold.")]

        @classmethod
        def list_splits(cls):
            return ["train"]

        @classmethod
        def list_tasks(cls, split):
            return [{{}}]

        @tool
        def hold(self, n: int) -> ToolOutput:
            begun.append(n)
            gate.wait()
            return said("held")

        @tool
        async def began(self) -> ToolOutput:
            return said(str(begun))

        @tool
        async def release(self) -> ToolOutput:
            gate.set()
            return said("released")

    def up(url):
        # Root has no limit of threads, but everyone has one of address space, and each stack takes of it.
        threading.stack_size(256 * 2**20)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 1500 * 2**20, resource.RLIM_INFINITY))
        print(url, flush=True)

    Server([Few], limits=Limits(grace_seconds=0.1)).runner(port=0, on_start=up).run()
    """
)


@contextmanager
def few() -> Iterator[tuple[subprocess.Popen[str], Raw]]:
    """A server that can start a handful of threads, and no more."""
    root = str(Path(__file__).parents[3])
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER.format(root=root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        yield server, Raw(server.stdout.readline().strip())
    finally:
        server.kill()
        server.communicate()


linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of address space are Linux's")


@linux
def test_a_call_that_is_refused_for_want_of_a_thread_never_runs() -> None:
    with few() as (_, raw), ThreadPoolExecutor(CALLS) as clients:
        looks = raw.session("few")
        sids = [raw.session("few") for _ in range(CALLS)]
        raw.get("/few/prompt", sid=sids[-1])

        def began() -> list[int]:
            text = raw.call(looks, "began", env="few").result()["output"]["blocks"][0]["text"]
            return [int(n) for n in text.strip("[]").split(", ") if n]

        calls = [clients.submit(raw.call, sid, "hold", {"n": n}, "few") for n, sid in enumerate(sids)]
        wait_until(lambda: sum(call.done() for call in calls) + len(began()) >= CALLS)
        refused = [n for n, call in enumerate(calls) if call.done()]
        raw.call(looks, "release", env="few")
        events = [call.result() for call in calls]
        for _ in range(CALLS):  # whoever is free now would take what lies in the queue
            raw.call(sids[0], "hold", {"n": -1}, env="few")
        ran = [n for n in began() if n >= 0]
        assert refused
        assert len(refused) < CALLS
        assert sorted(ran) == [n for n in range(CALLS) if n not in refused]
        for n in refused:
            assert "could not start another thread" in events[n].error()
            assert "reason: limit" in events[n].body.decode()


@linux
def test_a_teardown_waits_for_a_thread() -> None:
    with few() as (server, raw), ThreadPoolExecutor(CALLS + 1) as clients:
        looks = raw.session("few")
        ends = raw.session("few", {"n": 7})
        sids = [raw.session("few") for _ in range(CALLS)]
        for sid in (ends, *sids):
            raw.get("/few/prompt", sid=sid)
        calls = [clients.submit(raw.call, sid, "hold", {"n": 1}, "few") for sid in sids]
        wait_until(lambda: any(call.done() for call in calls))  # one was refused: there are no more
        deleted = clients.submit(raw.post, "/delete", None, sid=ends)
        wait_until(lambda: raw.post("/ping", sid=ends).status == 410)
        raw.call(looks, "release", env="few")
        assert deleted.result().status == 200
        assert server.stdout is not None
        assert server.stdout.readline() == "torn down 7\n"


class Listed(Lab):
    """Its tasks have not been listed yet."""


def test_tasks_that_are_listed_without_a_thread_are_an_error_and_listed_again_next_time() -> None:
    with serving(Server([Listed])) as url:
        raw = Raw(url)
        with no_new_thread():
            refused = raw.post("/listed/tasks", {"split": "train"})
        assert refused.status == 500
        assert "could not start another thread" in refused.detail
        assert len(raw.post("/listed/tasks", {"split": "train"}).json()["tasks"]) == 5


async def test_an_observer_that_finds_no_thread_to_close_in_keeps_nobody_from_closing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class First:
        def __init__(self) -> None:
            self.closed = threading.Event()

        def observe(self, event: Event) -> None: ...

        def close(self) -> None:
            self.closed.set()

    class Second(First): ...

    first, second = First(), Second()
    app = app_of(Server([Lab], observers=[first, second]))
    await app.threads.run(int)
    await until(lambda: app.threads._free, "its thread is free")
    with no_new_thread(), no_other_thread():
        await app.stop()
    assert (first.closed.is_set(), second.closed.is_set()) == (True, False)
    assert "Second was not closed: the server could not start another thread" in caplog.text


ENDING = textwrap.dedent(
    """
    import atexit, resource, threading
    from ors.server.process.system import Deadline
    atexit.register(threading.Event().wait)
    deadline = Deadline(1.0)
    threading.stack_size(256 * 2**20)
    resource.setrlimit(resource.RLIMIT_AS, (100 * 2**20, resource.RLIM_INFINITY))
    deadline.set(0.01)
    threading.Event().wait()
    """
)


@linux
def test_the_end_comes_though_no_thread_can_be_started_for_it() -> None:
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=20)
    assert (done.returncode, "can't start new thread" in done.stderr) == (0, True)


@contextmanager
def no_other_thread() -> Iterator[None]:
    """This thread gives way to no other, unless it waits."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


async def test_a_job_that_is_cancelled_before_it_began_never_runs_and_is_over_then() -> None:
    threads, ran = Threads(), list[str]()
    await threads.run(ran.append, "awaited")
    with no_other_thread():
        job = threads.run(ran.append, "cancelled")
        over = threads.over(job)
        job.cancel()
    await asyncio.wait_for(over, 20)
    await threads.run(ran.append, "later")
    assert ran == ["awaited", "later"]
    assert threads.lost == 0


async def test_a_job_of_the_default_executor_that_is_cancelled_before_it_began_never_runs() -> None:
    threads, ran = Threads(), list[str]()
    executor = Executor(threads)
    await threads.run(ran.append, "awaited")
    with no_other_thread():
        assert executor.submit(ran.append, "cancelled").cancel()
    await asyncio.get_running_loop().run_in_executor(executor, ran.append, "later")
    assert ran == ["awaited", "later"]


async def test_a_job_that_is_cancelled_at_work_is_over_when_its_thread_is_through() -> None:
    threads, gate, at_work = Threads(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(at_work.set)
        assert gate.wait(20)

    job = threads.run(work)
    over = threads.over(job)
    await at_work.wait()
    job.cancel()
    await asyncio.sleep(0)
    assert (over.done(), threads.lost) == (False, 1)
    gate.set()
    await asyncio.wait_for(over, 20)
    assert threads.lost == 0
    assert threads.over(job).done()
