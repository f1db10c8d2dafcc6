"""A supervisor among workers that hang, stand still or grow, and what is left when it is killed itself."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.support import SUPPORT
from tests.support.commands import ORS, PATIENCE, running, variables
from tests.support.raw_http import Raw
from tests.support.waiting import wait_until
from tests.support.worker_command import YARD, Crew, alive, crew

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="workers need a POSIX system"),
]

CLINGING = str(SUPPORT / "hanging_environment.py")
QUICK = ("--grace-seconds", "0.2", "--teardown-seconds", "0.2")
NARROW = """
import socket
pair = socket.socketpair
def narrow(*given):
    ends = pair(*given)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    return ends
socket.socketpair = narrow
from ors.cli import main
main()
"""


@contextmanager
def still(pid: int) -> Iterator[None]:
    """A process that stands still."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_a_worker_that_stands_still_does_not_stop_its_supervisor(tmp_path: Path) -> None:
    with crew(tmp_path, 2, *QUICK, command=[sys.executable, "-c", NARROW]) as two:
        first, second = two.pids()
        with still(first):
            for _ in range(4):  # each tells all workers several times how things stand
                known = set(two.living())
                two.process.send_signal(signal.SIGHUP)
                wait_until(lambda: len(set(two.living()) - known) == 2)  # noqa: B023
            wait_until(lambda: not alive(second))
            assert two.stop() == 0
        assert not alive(first)


def test_a_worker_reads_its_newest_orders_when_it_goes_on(tmp_path: Path) -> None:
    with crew(tmp_path, 2, *QUICK, command=[sys.executable, "-c", NARROW]) as two:
        first, _ = two.pids()
        with still(first):
            for _ in range(3):
                known = set(two.living())
                two.process.send_signal(signal.SIGHUP)
                wait_until(lambda: len(set(two.living()) - known) == 2)  # noqa: B023
        wait_until(lambda: not alive(first))  # it is told to retire, and has no session
        assert two.stop() == 0


def test_a_supervisor_whose_messages_nobody_reads_goes_on(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    with suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    os.set_blocking(write, True)
    process = subprocess.Popen(
        [*ORS, "serve", YARD, "--workers", "1", "--port", "0", "--log-level", "critical", *QUICK],
        env=variables({"YARD": str(tmp_path / "traces"), "PYTHONUNBUFFERED": "1"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=write,
        text=True,
    )
    os.close(write)
    try:
        one = Crew(process, tmp_path, 1)
        (first,) = one.living()
        os.kill(first, signal.SIGKILL)  # which it tells
        one.until(lambda: first not in one.living() and one.slots() == {0})
        assert one.stop() == 0
    finally:
        process.kill()
        process.communicate()
        os.close(read)


def test_a_server_that_is_reloaded_and_stands_still_ends() -> None:
    with running("serve", CLINGING, "--port", "0", "--reload", *QUICK) as server:
        server.line(r"Serving on")
        pid = server.process.pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        with still(int(child)):
            server.process.send_signal(signal.SIGTERM)
            server.process.communicate(timeout=PATIENCE)
        assert server.process.returncode == 0


@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.untraced
def test_a_worker_that_retires_is_killed_at_twice_the_limit_of_memory(tmp_path: Path, blocked: bool) -> None:
    with crew(tmp_path, 1, "--max-worker-memory", "300M") as one:
        (first,) = one.pids()
        sid = one.session()
        one.process.send_signal(signal.SIGHUP)
        one.until(lambda: one.pids() != [first])
        with suppress(OSError, AssertionError):  # its connection breaks
            one.told(sid, "swell" if blocked else "grow", megabytes=900)
        wait_until(lambda: not alive(first))
        assert one.said(r"Killing worker 0: it uses \d+ MiB")


def test_a_replaced_worker_that_does_not_end_is_killed(tmp_path: Path) -> None:
    hasty = "from ors.cluster import supervisor; supervisor.LAST_SECONDS = 0.5"
    hasty += "; from ors.cli import main; main()"
    command = [sys.executable, "-c", hasty]
    with crew(tmp_path, 1, "--drain-seconds", "0.2", "--grace-seconds", "0.1", command=command) as one:
        (first,) = one.pids()
        body, headers = '{"name": "stick", "input": {"name": "stuck"}}', {"X-Session-ID": one.session()}
        with closing(one.raw.connection()) as connection:
            connection.request("POST", "/yard/call", body, headers)
            wait_until(lambda: "stuck" in one.traces())
            one.process.send_signal(signal.SIGHUP)
            wait_until(lambda: not alive(first))


# ── A supervisor that is killed ──────────────────────────────────────────────────────────────────


def free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("words", [("--workers", "1"), ("--reload",)])
def test_a_worker_whose_event_loop_is_blocked_ends_with_its_supervisor(words: tuple[str, ...]) -> None:
    with running("serve", CLINGING, "--port", "0", *QUICK, *words) as server:
        raw = Raw(server.line(r"Serving on (http://\S+)")[1])
        pid = server.process.pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        connection = raw.connection()
        body, headers = '{"name": "on_the_loop", "input": {}}', {"X-Session-ID": raw.session("clinging")}
        connection.request("POST", "/clinging/call", body, headers)
        server.errors("blocked")
        server.process.kill()
        try:
            wait_until(lambda: free(raw.port))
            wait_until(lambda: not alive(int(child)))
        finally:
            connection.close()
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)


def test_a_worker_that_has_not_started_yet_ends_with_its_supervisor(tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text("import os, sys, time\nprint('at', os.getpid(), file=sys.stderr)\ntime.sleep(97)\n")
    with running("serve", str(file), "--port", "0", "--workers", "1") as server:
        pid = int(server.errors(r"at (\d+)")[1])
        server.process.kill()
        try:
            wait_until(lambda: not alive(pid))
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_the_server_of_a_command_ends_with_it() -> None:
    with running("bench", CLINGING, "--seconds", "60") as bench:
        pid = bench.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        wait_until(lambda: bool(children.read_text().split()))
        (child,) = map(int, children.read_text().split())
        bench.process.kill()
        try:
            wait_until(lambda: not alive(child))
        finally:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
