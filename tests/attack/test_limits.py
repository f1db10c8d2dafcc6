"""Servers that have come to the limit of the system: no more threads, no more descriptors, no more memory."""

import resource
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.attack.conftest import Scale, Tally
from tests.attack.fronts import Front, front, until
from tests.attack.link import stuffed
from tests.attack.moments import outcome
from tests.support.raw_http import Raw

pytestmark = pytest.mark.xdist_group("attack-limits")

THREADS = 4
FILES = 256
TOOL_FILES = 8
ANSWER_SECONDS = 3.0
CALM_LINES = 20
"""A full table of descriptors is told once, not with every client; so much may be logged besides."""


def test_a_call_that_gets_no_thread_does_not_run_later(tmp_path: Path, scale: Scale, tally: Tally) -> None:
    count, gate = scale.of(24, 120), tmp_path / "gate"
    with front("server", tmp_path) as where, ThreadPoolExecutor(count) as pool:
        sids, last = [where.session() for _ in range(count)], where.session()
        where.told(where.sids[0], "squeeze", threads=THREADS)

        def hold(sid: str, name: str) -> str:
            return outcome(where.raw.call(sid, "hold", {"name": name, "gate": str(gate)}, env="ground"))

        calls = [pool.submit(hold, sid, f"n{number}") for number, sid in enumerate(sids)]
        assert until(lambda: sum(call.done() for call in calls) >= count - 2 * THREADS), "nobody is refused"
        gate.touch()
        became = {f"n{number}": call.result() for number, call in enumerate(calls)}
        # Threads that are free by now would take what is still in line before this.
        assert until(lambda: hold(last, "last") == "ok")
        ran = [name for name in where.ran() if name.startswith("n")]
        well = {name for name, end in became.items() if end == "ok"}
        late = {name for name in ran if became[name] != "ok"}
        assert not late, f"{len(late)} of {count - len(well)} calls ran after they were told that they failed"
        assert well <= set(ran)
        assert where.healthy()
    tally("threads", f"{count} calls where {len(well)} threads can be had: those refused never ran")


@pytest.mark.parametrize("name", ["server", "workers"])
def test_tools_can_open_files_while_clients_take_all_descriptors(
    name: str, tmp_path: Path, scale: Scale, tally: Tally
) -> None:
    crowd = scale.of(600, 1000)
    _allow(2 * crowd)
    with front(name, tmp_path, files=FILES) as where, ExitStack() as stack:
        early = stack.enter_context(_Kept(where))
        address = (where.raw.host, where.raw.port)
        ends = [stack.enter_context(socket.create_connection(address, 20)) for _ in range(crowd)]
        for end in ends:
            end.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(5):
            assert early.files() == "ok"
        statuses = _statuses(ends)
        assert statuses == {200, 503}, statuses
        stack.pop_all().close()
        assert until(lambda: _asked(where.raw) == 200), "it does not recover"
        assert len(where.log().splitlines()) < CALM_LINES, where.log()[-3000:]
        assert "Traceback" not in where.log()
    tally(f"{FILES} descriptors of a {name}", f"{crowd:,} clients: tools open files, others are told 503")


def test_a_server_without_memory_lives(tmp_path: Path, scale: Scale, tally: Tally) -> None:
    count = scale.of(10, 30)
    with front("server", tmp_path) as where, ExitStack() as stack, ThreadPoolExecutor(10) as pool:
        where.told(where.sids[0], "squeeze", threads=0)
        address = (where.raw.host, where.raw.port)
        ends = [stack.enter_context(socket.create_connection(address, 20)) for _ in range(count)]
        head = b"POST /ground/num_tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30000000\r\n\r\n"
        list(pool.map(lambda end: stuffed(end, head + b"x" * 29_999_999, 20), ends))
        stack.pop_all().close()
        assert until(lambda: _asked(where.raw) == 200), where.log()[-2000:]
        assert where.told(where.sids[0], "note", name="after") == "after"
    tally("64 MB of address space left", f"{count} bodies of 30 MB: the server lives and answers")


class _Kept:
    """A client that was there first, with a session."""

    def __init__(self, where: Front) -> None:
        self._connection = where.raw.connection()
        self._sid = where.sids[0]
        assert self.files() == "ok"

    def __enter__(self) -> "_Kept":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def files(self) -> str:
        """Calls a tool that opens files, and returns the outcome."""
        body = b'{"name": "files", "input": {"count": %d}}' % TOOL_FILES
        self._connection.request("POST", "/ground/call", body, {"X-Session-ID": self._sid})
        response = self._connection.getresponse()
        data = response.read().decode()
        return "ok" if response.status == 200 and "event: end" in data else f"{response.status} {data}"


def _statuses(ends: list[socket.socket]) -> set[int]:
    """The statuses of all answers that come; some connections may be closed, or wait in line."""
    found, waiting, until_then = set(), set(ends), time.monotonic() + ANSWER_SECONDS
    while waiting and time.monotonic() < until_then:
        for end in select.select(list(waiting), [], [], 0.1)[0]:
            waiting.discard(end)
            with suppress(ConnectionResetError):
                line = end.recv(4096)
                found |= {int(line.split()[1])} if line else set()
    return found


def _asked(raw: Raw) -> int:
    try:
        return raw.get("/health").status
    except OSError:
        return 0


def _allow(files: int) -> None:
    """Lets this process have so many descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, hard), hard))
