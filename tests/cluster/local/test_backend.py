"""The supervisor as a backend: what it can do of the seam, and what it says it cannot."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from ors.cluster.backend import Backend, Unsupported
from ors.cluster.local import Policy, Supervisor, WorkerConfig, listeners
from ors.cluster.local.messages import Channel, WorkerReport
from ors.server.process.folders import own_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="workers need a POSIX system")


class Workers:
    """A supervisor whose workers are processes that do nothing: the test reports for them."""

    def __init__(self, count: int) -> None:
        self.controls: list[socket.socket] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.ready: list[str] = []
        self.sockets = listeners("127.0.0.1", 0, count)
        self.supervisor = Supervisor(
            self._start, self.sockets, Policy(), lambda url, names: self.ready.append(url), lambda line: None
        )
        self.backend: Backend = self.supervisor

    def _start(self, config: WorkerConfig) -> subprocess.Popen[bytes]:
        self.controls.append(socket.socket(fileno=socket.dup(config.control)))
        self.processes.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        return self.processes[-1]

    def report(self, number: int, sessions: int = 0) -> None:
        """Sends a report of the worker that was started as that one, and lets the supervisor read it."""
        Channel(self.controls[number]).send(WorkerReport(f"http://{number}", (), sessions))
        self.supervisor._wait()


@pytest.fixture
def two() -> Iterator[Workers]:
    made = Workers(2)
    with own_folder() as folder:
        made.supervisor._folder = folder
        made.supervisor.place(0)
        made.report(0)
        made.report(1)
        assert len(made.ready) == 1
        yield made
        made.supervisor.close()
    for process in made.processes:
        with closing(process.stdin) if process.stdin is not None else process:
            process.wait(20)
    for each in (*made.controls, *made.sockets):
        each.close()


def test_workers_are_listed_with_their_sessions(two: Workers) -> None:
    two.report(1, sessions=7)
    assert [(host.slot, host.sessions, host.retiring) for host in two.backend.list().hosts] == [
        (0, 0, False),
        (1, 7, False),
    ]


def test_a_drained_worker_is_replaced_and_keeps_its_sessions(two: Workers) -> None:
    two.report(1, sessions=7)
    assert two.backend.drain(1) == 7
    assert two.backend.drain(1) == 7  # asked again, it is replaced once
    two.supervisor._do_due(0.0)
    assert len(two.processes) == 3
    two.report(2)
    two.supervisor._do_due(0.0)
    assert len(two.processes) == 3
    assert [(host.slot, host.sessions, host.retiring) for host in two.backend.list().hosts] == [
        (0, 0, False),
        (1, 0, False),
        (1, 7, True),
    ]


def test_a_stopped_worker_is_not_restarted_until_its_slot_is_placed_again(two: Workers) -> None:
    assert two.backend.stop(1) is False
    two.processes[1].wait(20)
    assert two.supervisor._reap() is None
    two.supervisor._do_due(time.monotonic() + 10)
    assert len(two.processes) == 2
    assert two.backend.stop(1) is True
    two.backend.drain(0)
    two.supervisor._do_due(0.0)
    two.report(2)  # a worker that comes up elsewhere does not fill the slot either
    assert len(two.processes) == 3
    assert {host.slot for host in two.backend.list().hosts} == {0}
    two.backend.place(1)
    two.report(3)
    assert {host.slot for host in two.backend.list().hosts} == {0, 1}


def test_what_a_supervisor_cannot_do_is_said(two: Workers) -> None:
    two.backend.scale(2, 2)
    for least, most in ((1, 2), (2, 3), (3, 3)):
        with pytest.raises(Unsupported, match="the number of workers is fixed: 2, one for each socket"):
            two.backend.scale(least, most)
    with pytest.raises(Unsupported, match="slot 2: there are 2 sockets"):
        two.backend.place(2)
    with pytest.raises(Unsupported, match="takes no new sessions again"):
        two.backend.undrain(0)
