"""`ors serve` ends when it is told to, whatever the environment's code does, and says what it left."""

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support import SUPPORT
from tests.support.commands import PATIENCE, Running, running
from tests.support.raw_http import Raw

pytestmark = pytest.mark.long

CLINGING = str(SUPPORT / "hanging_environment.py")


@pytest.fixture
def server() -> Iterator[Running]:
    limits = ("--grace-seconds", "0.2", "--teardown-seconds", "0.2")
    with running("serve", CLINGING, "--port", "0", *limits) as serving:
        yield serving


def connected(server: Running) -> Raw:
    return Raw(server.url())


def test_a_thread_of_asyncios_that_hangs_does_not_keep_the_process(server: Running) -> None:
    raw = connected(server)
    with raw.opened(raw.session("clinging"), "in_a_thread", env="clinging") as call:
        server.process.send_signal(signal.SIGTERM)
        assert b"reason: shutdown" in call.rest().body
    _, log = server.process.communicate(timeout=PATIENCE)
    assert server.process.returncode == 0
    assert "still running at exit" in log
    assert "cling (" in log


def test_threads_of_asyncios_that_hang_hold_up_nobody_and_are_counted(server: Running) -> None:
    raw = connected(server)
    with ExitStack() as calls:
        sids = [raw.session("clinging") for _ in range(50)]
        for sid in sids:
            calls.enter_context(raw.opened(sid, "in_a_thread", env="clinging"))
        assert raw.call(raw.session("clinging"), "briefly", env="clinging").result()["ok"]
        for sid in sids[:3]:
            assert raw.post("/delete", sid=sid).status == 200
        assert b"ors_threads_lost 3.0" in raw.get("/-/metrics").body


def test_a_thread_of_the_authors_own_does_not_keep_the_process(server: Running) -> None:
    raw = connected(server)
    assert raw.call(raw.session("clinging"), "in_a_thread_of_its_own", env="clinging").result()["ok"]
    done = server.stop()
    assert done.code == 0
    assert "still running at exit: thread mine in cling (" in done.err


def test_a_task_that_cannot_be_cancelled_does_not_keep_the_process(server: Running) -> None:
    raw = connected(server)
    with raw.opened(raw.session("clinging"), "against_its_will", env="clinging") as call:
        server.process.send_signal(signal.SIGTERM)
        assert b"reason: shutdown" in call.rest().body
    _, log = server.process.communicate(timeout=PATIENCE)
    assert server.process.returncode == 0
    assert "still running at exit: a task" in log


def test_a_collector_that_never_answers_does_not_keep_the_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        with running("serve", CLINGING, "--port", "0", env=variables) as server:
            raw = connected(server)
            raw.post("/delete", sid=raw.session("clinging"))
            done = server.stop()
    assert done.code == 0


def ended(server: Running, number: signal.Signals | None) -> str:
    """What it has logged up to its end; until then it is sent signals, if any."""
    while server.process.poll() is None and number is not None:
        server.process.send_signal(number)
        try:  # Python hears no signal that comes in the last moment of its work on another
            server.process.wait(0.5)
        except subprocess.TimeoutExpired:
            continue
    return server.process.communicate(timeout=PATIENCE)[1]


@pytest.mark.untraced
@pytest.mark.parametrize("impatient", [False, True])
def test_a_blocked_event_loop_does_not_keep_the_process(impatient: bool) -> None:
    limits = ("--grace-seconds", "1000" if impatient else "0.2", "--teardown-seconds", "0.2")
    with running("serve", CLINGING, "--port", "0", *limits) as server:
        raw = connected(server)
        connection = raw.connection()
        try:
            body, headers = '{"name": "on_the_loop", "input": {}}', {"X-Session-ID": raw.session("clinging")}
            connection.request("POST", "/clinging/call", body, headers)
            server.errors("blocked")
            server.process.send_signal(signal.SIGTERM)
            log = ended(server, signal.SIGTERM if impatient else None)
        finally:
            connection.close()
    assert server.process.returncode == 0
    assert "still running at exit: thread MainThread in cling (" in log
