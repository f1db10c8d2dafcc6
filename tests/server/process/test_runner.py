"""The server as a process of its own: signals, memory, threads."""

import asyncio
import gc
import http.client
import os
import platform
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ors import Server
from ors.server.process.runner import YOUNG_OBJECTS, Part, Runner
from tests.support.environments import Lab
from tests.support.live_server import app_of
from tests.support.raw_http import Raw

SERVER = textwrap.dedent(
    """
    import sys, time
    sys.path.insert(0, {root!r})
    from ors import Limits, Server
    from tests.support.environments import Lab
    class Sleeper(Lab):
        def teardown(self):
            sys.stdout.write("torn down\\n")
    limits = Limits(grace_seconds=float(sys.argv[1]), kept_seconds=float(sys.argv[2]))
    server = Server([Sleeper], limits=limits, inspector=False)
    server.runner(port=0, on_start=lambda url: print(url, flush=True)).run()
    print("over", flush=True)
    """
)


@contextmanager
def process(grace: float = 10, kept: float = 60) -> Iterator[tuple[subprocess.Popen[str], Raw]]:
    root = str(Path(__file__).parents[3])
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER.format(root=root), str(grace), str(kept)],
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_streams_tears_down_and_exits_with_0(number: signal.Signals) -> None:
    with process(grace=0.1) as (server, raw):
        idle = raw.session("sleeper")
        raw.get("/sleeper/prompt", sid=idle)
        with raw.opened(raw.session("sleeper"), "stay", env="sleeper") as call:
            server.send_signal(number)
            assert "shutting down" in call.rest().error()
        out, err = server.communicate(timeout=20)
    assert out.splitlines() == ["torn down", "torn down", "over"]
    assert server.returncode == 0
    assert "Traceback" not in err


def test_a_second_signal_ends_at_once() -> None:
    with process(grace=1000) as (server, raw), raw.opened(raw.session("sleeper"), "stay", env="sleeper"):
        server.send_signal(signal.SIGTERM)
        while raw.post("/create", {"task_spec": {}}, sid="late").status != 503:
            pass
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=20)
    assert server.returncode == 0


def test_a_tool_that_hangs_in_a_thread_does_not_keep_the_process() -> None:
    with process(grace=0.1) as (server, raw):
        with raw.opened(raw.session("sleeper"), "hold", env="sleeper") as call:
            server.send_signal(signal.SIGTERM)
            assert "shutting down" in call.rest().error()
        server.communicate(timeout=15)
    assert server.returncode == 0


def test_a_taken_port_is_one_clear_line() -> None:
    with process() as (_, raw):
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[3])!r})\nfrom ors import Server\n"
        code += f"from tests.support.environments import Lab\nServer([Lab]).run(port={raw.port})"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
        )
    assert done.returncode == 3
    again = f"the port is in use; pass another, such as run(port={raw.port + 1})"
    assert done.stderr == f"Cannot listen on 127.0.0.1:{raw.port}: {again}\n"


def resident(pid: int) -> int:
    """Kilobytes of memory of a process."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1])


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc to read another process's memory")
@pytest.mark.untraced
def test_memory_does_not_grow_with_calls_sessions_or_unknown_ids() -> None:
    with process(kept=0) as (server, raw):
        connection = raw.connection()

        def ask(path: str, body: str, sid: str) -> int:
            connection.request("POST", path, body, {"X-Session-ID": sid})
            response = connection.getresponse()
            response.read()
            return response.status

        def churn(times: int, name: str) -> None:
            for n in range(times):
                assert ask("/ping", "", f"unknown-{name}-{n}" + "x" * 200) == 404
                assert ask("/create", '{"task_spec": {}}', f"{name}-{n}") == 200
                body = '{"name": "echo", "input": {"text": "%s"}}' % ("x" * 2000)
                assert ask("/sleeper/call", body, f"{name}-{n}") == 200
                assert ask("/delete", "", f"{name}-{n}") == 200

        churn(500, "warm")
        before = resident(server.pid)
        churn(1500, "main")
        grown = resident(server.pid) - before
        connection.close()
    # Tombstones are 1,500 × about 200 bytes; a leak of each 2 KB result would be 3 MB, of each session 4 MB.
    assert grown < 1500, f"{grown} kB"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep nothing")
@pytest.mark.untraced
def test_memory_of_long_results_is_given_back_though_others_lie_behind_them() -> None:
    with process() as (server, raw):
        sids = [raw.session("sleeper") for _ in range(17)]
        for sid, size in zip(sids, [12_000_000] + [8_000_000] * 16, strict=True):
            assert raw.call(sid, "echo", {"text": "x" * size}, env="sleeper").status == 200
            if sid == sids[0]:  # after this one, those that follow lie in the heap
                assert raw.post("/delete", sid=sid).status == 200
        most = resident(server.pid)
        for sid in sids[1::2]:
            assert raw.post("/delete", sid=sid).status == 200
        while resident(server.pid) > most - 50_000:
            assert raw.get("/health").status == 200


def test_a_connection_is_kept_for_many_calls(raw: Raw) -> None:
    sid = raw.session()
    connection = http.client.HTTPConnection(raw.host, raw.port, timeout=10)
    connection.connect()
    first = connection.sock
    for _ in range(50):
        connection.request("POST", "/lab/call", '{"name": "nothing", "input": {}}', {"X-Session-ID": sid})
        assert connection.getresponse().read().endswith(b"\n\n")
    assert connection.sock is first
    connection.close()


class Told(Part):
    """Writes down what happens to it."""

    def __init__(self, name: str, story: list[str]) -> None:
        self._name, self._story = name, story

    async def start(self, runner: Runner) -> None:
        self._story.append(f"start {self._name}")
        self._runner = runner

    def tick(self, number: int) -> None:
        if not number:
            self._story.append(f"tick {self._name}")
            self._runner.should_exit = True

    async def drain(self) -> None:
        self._story.append(f"drain {self._name}")

    async def stop(self) -> None:
        self._story.append(f"stop {self._name}")


def test_parts_start_in_order_before_it_listens_and_stop_in_reverse() -> None:
    story: list[str] = []
    app = app_of(Server([Lab]))
    parts = [app, Told("first", story), Told("last", story)]
    Runner(app, "127.0.0.1", 0, lambda url: story.append("listens"), parts=parts).run()
    begun = ["start first", "start last", "listens", "tick first", "tick last"]
    assert story == [*begun, "drain first", "drain last", "stop last", "stop first"]


class Looking(Told):
    """Looks at the garbage collector while the server runs."""

    def tick(self, number: int) -> None:
        self._story.append(f"{gc.get_threshold()[0]} {gc.get_freeze_count() > 0}")
        super().tick(0)


def test_the_garbage_collector_visits_less_while_the_server_runs() -> None:
    before, seen = (gc.get_threshold(), gc.get_freeze_count()), list[str]()
    app = app_of(Server([Lab]))
    Runner(app, "127.0.0.1", 0, parts=[app, Looking("it", seen)]).run()
    assert f"{YOUNG_OBJECTS} True" in seen
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


class Hanging(Told):
    """A part that never gets to its start."""

    async def start(self, runner: Runner) -> None:
        runner.should_exit = True
        await asyncio.Event().wait()


def test_a_start_that_hangs_can_be_interrupted(caplog: pytest.LogCaptureFixture) -> None:
    app = app_of(Server([Lab]))
    Runner(app, "127.0.0.1", 0, parts=[Hanging("it", [])]).run()
    assert "interrupted during startup" in caplog.text
