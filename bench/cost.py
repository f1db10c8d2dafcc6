"""What metrics, the log and API keys cost a call: `python -m bench.cost [--rounds N] [--seconds S]`.

Two servers of ours take turns under the same load: one as it is by default, with keys, the other with nobody
who watches and without keys. Compared is the CPU time of the server for a call, system calls included, which
bounds its calls/s on a core and does not depend on what else the machine does.
"""

import argparse
import asyncio
import datetime
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench import machine
from bench.environment import Bench
from bench.servers import ROOT
from ors import Server
from ors._protocol import API_KEY, CALL, CREATE, SESSION_ID

CONNECTIONS = 32
SECRET = "a-key-that-is-long-enough-to-be-one"
MOST = 0.10


class Load(asyncio.Protocol):
    """One connection that asks again as soon as it is answered."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._transport: asyncio.Transport | None = None
        self.answered = 0
        self.wrong = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._ask()

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"\n\n") and b"\nevent: end\n" in data:
            self.answered += 1
            self._ask()
        elif not data.startswith(b"HTTP/1.1 200"):
            self.wrong = data

    def _ask(self) -> None:
        assert self._transport is not None
        self._transport.write(self._request)

    def stop(self) -> None:
        """Asks no more."""
        assert self._transport is not None
        self._transport.abort()


def _request(path: str, sid: str, body: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"{SESSION_ID}: {sid}", f"{API_KEY}: {SECRET}"]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", body]).encode()


class Subject:
    """One of the two servers."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self._pid = process.pid
        self._port = int(process.stdout.readline().rpartition(":")[2])
        self.microseconds: list[float] = []
        self.rates: list[float] = []

    async def open(self) -> None:
        """Makes a session for each connection."""
        for number in range(CONNECTIONS):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(_request(CREATE.path(), f"s{number}", '{"split":"train","index":1}'))
            assert b" 200 " in await reader.readuntil(b"\r\n")
            writer.close()

    async def turn(self, seconds: float) -> None:
        """Measures once."""
        body = '{"name":"submit","input":{"answer":"4"}}'
        loop = asyncio.get_running_loop()
        loads = []
        used, began = machine.cpu_seconds(self._pid), time.perf_counter()
        for number in range(CONNECTIONS):
            request = _request(CALL.path("bench"), f"s{number}", body)
            _, load = await loop.create_connection(lambda r=request: Load(r), "127.0.0.1", self._port)  # type: ignore[misc]
            loads.append(load)
        await asyncio.sleep(seconds)
        calls = sum(load.answered for load in loads)
        took, busy = time.perf_counter() - began, machine.cpu_seconds(self._pid) - used
        for load in loads:
            load.stop()
            if load.wrong:
                raise RuntimeError(f"unexpected: {load.wrong!r}")
        self.microseconds.append(busy / calls * 1e6)
        self.rates.append(calls / took)


@contextmanager
def _subject(kind: str) -> Iterator[Subject]:
    with machine.pinned(machine.cores()[0]):
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.cost", "--serve", kind], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
    try:
        yield Subject(process)
    finally:
        process.kill()
        process.communicate()


async def _compare(on: Subject, off: Subject, rounds: int, seconds: float) -> None:
    for subject in (on, off):
        await subject.open()
        await subject.turn(seconds)
        subject.microseconds.clear()
        subject.rates.clear()
    for number in range(rounds):
        for subject in (on, off) if number % 2 else (off, on):
            await subject.turn(seconds)


def _serve(kind: str) -> None:
    server = Server([Bench], api_keys=[f"team={SECRET}"] if kind == "on" else [])
    if kind == "off":
        server._app.shared.observers.all.clear()
    server.runner(port=0, on_start=lambda url: print(url, flush=True)).run()


def main() -> int:
    """Measures, and says whether it is good enough."""
    parser = argparse.ArgumentParser(prog="python -m bench.cost", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--serve", choices=["on", "off"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        _serve(given.serve)
        return 0
    with _subject("on") as on, _subject("off") as off, machine.pinned(machine.cores()[1]):
        asyncio.run(_compare(on, off, given.rounds, given.seconds))
    with_all, without = statistics.median(on.microseconds), statistics.median(off.microseconds)
    # Each turn beside its neighbour: the machine changes less between two turns than over all of them.
    cost = statistics.median(a / b for a, b in zip(on.microseconds, off.microseconds, strict=True)) - 1
    print(datetime.date.today().isoformat(), machine.described())
    print(f"CPU a call: {with_all:.1f} µs with metrics, log and keys, {without:.1f} without")
    print(f"calls/s: {statistics.median(on.rates):,.0f} and {statistics.median(off.rates):,.0f}")
    print(f"cost: {cost:.1%} (at most {MOST:.0%})")
    return 0 if cost < MOST else 1


if __name__ == "__main__":
    sys.exit(main())
