"""What several servers cost and bring: `python -m bench.cluster`, in about four minutes."""

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench import load, machine, plans
from bench.servers import ROOT, Subject
from ors.client import AsyncORS, AsyncSession
from ors.cluster.servers import MOVE_AFTER

TARGET = f"{ROOT / 'bench' / 'environment.py'}:Bench"
YARD = f"{ROOT / 'tests' / 'support' / 'traced_environment.py'}:Yard"
ROUNDS = 5
SESSIONS = 10_000
COSTLY: dict[str, tuple[plans.Step, int, float]] = {  # what is asked, over how many connections, how long
    "call, one at a time": (plans.SUBMIT, 1, 1.0),
    "call, 32 at a time": (plans.SUBMIT, 32, 1.0),
    "call of two seconds, 1,000 at a time": (plans.SLOW, 1000, 3.0),
    "ping, one at a time": (plans.PING, 1, 1.0),
    "ping, 32 at a time": (plans.PING, 32, 1.0),
}


class Command:
    """An `ors` command that serves."""

    subject: Subject = "ours"

    def __init__(self, *words: str, **variables: str) -> None:
        command = [sys.executable, "-m", "ors", *words, "--port", "0", "--log-level", "error"]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **variables}
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(r" on (http://127.0.0.1:(\d+))", line):
                self.url, self.port = found[1], int(found[2])
                return
        raise RuntimeError(f"it does not start: {words}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def pids(self) -> list[int]:
        """The processes that it has started."""
        found = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in found.split()]

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate()


@contextmanager
def ors(*words: str, **variables: str) -> Iterator[Command]:
    made = Command(*words, **variables)
    try:
        yield made
    finally:
        made.stop()


class Caller:
    """One connection of plain bytes: what it measures is the server's doing."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def open(self, wanted: int | None = None) -> str:
        """A new session, of that slot if it matters."""
        while True:
            sid = str(json.loads(self.ask("/create_session", b"{}"))["sid"])
            self.ask("/create", b'{"split":"train","index":1}', sid)
            if wanted is None or int(sid[:4], 16) == wanted:
                return sid

    def ask(self, path: str, body: bytes, sid: str = "") -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        head += f"X-Session-ID: {sid}\r\n\r\n" if sid else "\r\n"
        self._socket.sendall(head.encode() + body)
        answer = self._socket.recv(65536)
        while b"\r\n\r\n" not in answer:
            answer += self._socket.recv(65536)
        head_bytes, _, rest = answer.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head_bytes)
        assert length, answer
        while len(rest) < int(length[1]):
            rest += self._socket.recv(65536)
        return rest

    def close(self) -> None:
        self._socket.close()

    def place(self, pids: list[int]) -> int:
        """Which of these processes has the other end of this connection."""
        here, there = (f":{self._socket.getsockname()[1]:04X}", f":{self.port:04X}")
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        inode = next(row[9] for row in rows if row[1].endswith(there) and row[2].endswith(here))
        for number, pid in enumerate(pids):
            for file in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(FileNotFoundError):
                    if file.readlink().name == f"socket:[{inode}]":
                        return number
        raise RuntimeError("nobody has this connection")

    def latency(self, sid: str, count: int) -> float:
        """The median time of a small call, in µs."""
        took = []
        for _ in range(count):
            began = time.perf_counter()
            answer = self.ask("/bench/call", b'{"name":"submit","input":{"answer":"x"}}', sid)
            took.append(time.perf_counter() - began)
            assert b"event: end" in answer
        return statistics.median(took) * 1e6


def latencies() -> dict[str, float]:
    """One connection: a server directly, and the same through a router."""
    rows: dict[str, list[float]] = {"direct": [], "router": []}
    with (
        ors("serve", TARGET) as alone,
        ors("serve", TARGET, "--slot", "1") as other,
        ors("route", "--to", alone.url, "--to", other.url) as router,
    ):
        direct, routed = Caller(alone.port), Caller(router.port)
        pair = direct.open(), routed.open()
        for _ in range(ROUNDS):
            rows["direct"].append(direct.latency(pair[0], 400))
            rows["router"].append(routed.latency(pair[1], 400))
    found = {f"{name}, µs": statistics.median(values) for name, values in rows.items()}
    # Round by round, so that a machine that others use is equally slow for both.
    found["more by a router, µs"] = _more(rows["direct"], rows["router"])
    return found


def landings() -> dict[str, float]:
    """Two workers, a new connection each time: it is at the session's worker, or at the other and moves."""
    rows: dict[str, list[float]] = {"own": [], "forwarded": [], "moved": []}
    with ors("serve", TARGET, "--workers", "2") as two:
        opener, pids = Caller(two.port), two.pids()
        sids = [opener.open(0), opener.open(1)]
        while min(map(len, rows.values())) < 50 * ROUNDS:
            for wanted, sid in enumerate(sids):
                caller = Caller(two.port)
                caller.latency(sid, 1)
                landed = caller.place(pids)
                first = caller.latency(sid, MOVE_AFTER - 2)
                rows["own" if landed == wanted else "forwarded"].append(first)
                caller.latency(sid, MOVE_AFTER)
                assert caller.place(pids) == wanted
                if landed != wanted:
                    rows["moved"].append(caller.latency(sid, MOVE_AFTER))
                caller.close()
    found = {f"{name}, µs": statistics.median(values) for name, values in rows.items()}
    found["more while it is forwarded, µs"] = found["forwarded, µs"] - found["own, µs"]
    found["more once it has moved, µs"] = found["moved, µs"] - found["own, µs"]
    return found


def _more(ones: list[float], others: list[float]) -> float:
    return statistics.median(other - one for one, other in zip(ones, others, strict=True))


def _times(ones: list[float], others: list[float]) -> float:
    return statistics.median(other / one for one, other in zip(ones, others, strict=True))


def throughput() -> dict[str, float]:
    """Calls/s at 32 and 256 connections, the load generator on the same two cores."""
    found: dict[str, list[float]] = {}
    with ors("serve", TARGET) as one, ors("serve", TARGET, "--workers", "2") as two:
        for server in (one, two):  # warm, with sessions as servers have them
            load.run(server, plans.calls(plans.SUBMIT), 256, 0.5)
        for number in range(ROUNDS):
            for connections in (32, 256):
                for name, server in [("1 worker", one), ("2 workers", two)][:: 1 if number % 2 else -1]:
                    sample = load.run(server, plans.calls(plans.SUBMIT), connections, 1.5)
                    found.setdefault(f"{name}, {connections}", []).append(sample.passes_per_second)
    told = {name: statistics.median(values) for name, values in sorted(found.items())}
    for connections in (32, 256):
        alone, both = found[f"1 worker, {connections}"], found[f"2 workers, {connections}"]
        told[f"times, {connections}"] = _times(alone, both)
    return told


def costs() -> dict[str, float]:
    """CPU time of a call and of a ping, in µs: at the server, and at the router before it."""
    found = {}
    with (
        ors("serve", TARGET) as server,
        ors("serve", TARGET, "--slot", "1") as other,
        ors("route", "--to", server.url, "--to", other.url) as router,
    ):
        for kind, (step, connections, seconds) in COSTLY.items():
            for name, target in (("server", server), ("router", router)):
                plan = plans.calls(step)
                samples = [load.run(target, plan, connections, seconds).cpu_us for _ in range(3)]
                found[f"{kind}, {name}"] = statistics.median(samples)
    return found


def crowd(sessions: int = SESSIONS, calls: int = 2000) -> dict[str, float]:
    """Many sessions over two workers, without a call and with one; many calls at once of two seconds."""
    with ors("serve", TARGET, "--workers", "2") as two:
        called, _ = _filled(two, sessions, with_call=True)
    with ors("serve", TARGET, "--workers", "2") as two:
        bare, opened = _filled(two, sessions, with_call=False)
        slow = load.run(two, plans.crowd(plans.SLOW), calls, count=calls)
        return {
            "sessions": opened.passes,
            "bytes a session": bare,
            "bytes a session after a call": called,
            "sessions/s": opened.passes_per_second,
            "slow calls": slow.calls,
            "seconds for all": slow.seconds,
        }


def _filled(two: Command, sessions: int, *, with_call: bool) -> tuple[float, load.Sample]:
    """The bytes that each of many new sessions takes; with a call, its kept result is among them."""
    before = sum(map(machine.resident_bytes, two.pids()))
    opened = load.run(two, plans.sessions(with_call=with_call), 32, count=sessions)
    grown = sum(map(machine.resident_bytes, two.pids())) - before
    return grown / opened.passes, opened


async def _spin(url: str, count: int) -> float:
    async with AsyncORS(url) as client:
        env = client.environment("yard")
        sessions = [env.session(split="train", index=0) for _ in range(count)]
        for session in sessions:
            await session.__aenter__()
        began = time.perf_counter()
        await asyncio.gather(*(session.call_tool("spin", {"seconds": 0.5}) for session in sessions))
        took = time.perf_counter() - began
        for session in sessions:
            await session.__aexit__(None, None, None)
    return took


def busy() -> dict[str, float]:
    """CPU-bound tools: eight calls that need half a second of a core each."""
    took: dict[int, list[float]] = {1: [], 2: []}
    with (
        ors("serve", YARD, YARD=os.devnull) as one,
        ors("serve", YARD, "--workers", "2", YARD=os.devnull) as two,
    ):
        for _ in range(3):
            took[1].append(asyncio.run(_spin(one.url, 8)))
            took[2].append(asyncio.run(_spin(two.url, 8)))
    found = {f"{workers} worker(s), s": min(seconds) for workers, seconds in took.items()}
    return {**found, "times": _times(took[2], took[1])}


def memory(count: int = 2000) -> dict[str, float]:
    """What an open call takes of the router's memory at most, with a connection of its own."""
    with ors("serve", TARGET) as server, ors("route", "--to", server.url) as router:
        load.run(router, plans.crowd(plans.SLOW), 50, count=50)  # warm
        before = machine.resident_bytes(router.pid)
        slow = load.run(router, plans.crowd(plans.SLOW), count, count=count)
        grown = machine.most_resident_bytes(router.pid) - before
        return {"calls that ended well": slow.calls, "router, kB an open call": grown / count / 1000}


def killing() -> dict[str, object]:
    """A worker killed in the middle of 50 calls: what clients saw, and how soon."""
    with tempfile.TemporaryDirectory() as folder:
        traces = Path(folder) / "traces"
        with ors("serve", YARD, "--workers", "2", YARD=str(traces)) as server:
            return asyncio.run(_kill(server, traces))


async def _stay(session: AsyncSession, n: int, seen: dict[int, tuple[float, str]]) -> None:
    try:
        await session.call_tool("stay", {"name": f"c{n}"})
    except Exception as error:
        seen[n] = (time.perf_counter(), f"{type(error).__name__}: {error}")


async def _kill(server: Command, traces: Path) -> dict[str, object]:
    async with AsyncORS(server.url) as client:
        env = client.environment("yard")
        sessions = [env.session(split="train", index=0) for _ in range(50)]
        for session in sessions:
            await session.__aenter__()
        seen: dict[int, tuple[float, str]] = {}
        tasks = [asyncio.create_task(_stay(session, n, seen)) for n, session in enumerate(sessions)]
        while len(_traces(traces)) < 50:  # noqa: ASYNC110 (another process leaves them)
            await asyncio.sleep(0.01)
        killed = time.perf_counter()
        os.kill(server.pids()[1], signal.SIGKILL)
        lost = [n for n, session in enumerate(sessions) if str(session.sid).startswith("0001")]
        while len(seen) < len(lost):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        async with env.session(split="train", index=0) as fresh:
            await fresh.call_tool("note", {"name": "fresh"})
        started = time.perf_counter()
        while len(_slots(server)) < 2:  # noqa: ASYNC110 (the server is asked)
            await asyncio.sleep(0.01)
        back = time.perf_counter()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        names = [name for name in _traces(traces) if name.startswith("c")]
        return {
            "calls": 50,
            "lost": len(lost),
            "of the others, told something": len(seen.keys() - lost),
            "told": sorted({text for _, text in seen.values()}),
            "first told, ms": round((min(at for at, _ in seen.values()) - killed) * 1e3, 1),
            "last told, ms": round((max(at for at, _ in seen.values()) - killed) * 1e3, 1),
            "a new session and its first call, ms": round((started - killed) * 1e3, 1),
            "the worker is back, ms": round((back - killed) * 1e3, 1),
            "tools that ran twice": len(names) - len(set(names)),
        }


def _traces(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def _slots(server: Command) -> set[str]:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
        connection.request("GET", "/-/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
    except (OSError, http.client.HTTPException):
        return set()
    return set(re.findall(r'ors_calls_running\{server="(\d+)"\}', text))


PARTS: dict[str, Callable[[], dict[str, object]]] = {
    "latency": latencies,  # type: ignore[dict-item]
    "landings": landings,  # type: ignore[dict-item]
    "throughput": throughput,  # type: ignore[dict-item]
    "costs": costs,  # type: ignore[dict-item]
    "crowd": crowd,  # type: ignore[dict-item]
    "busy": busy,  # type: ignore[dict-item]
    "memory": memory,  # type: ignore[dict-item]
    "killing": killing,
}


def main() -> None:
    """Measures the parts that are named, or all."""
    machine.allow_many_files()
    for name in sys.argv[1:] or PARTS:
        noise = machine.noise_now()
        print(name, json.dumps(PARTS[name](), indent=1), f"(others took {noise:.0%} of the machine)")


if __name__ == "__main__":
    main()
