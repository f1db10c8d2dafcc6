"""What metrics, the log, API keys, named rewards and MCP cost a call: `python -m bench.cost [--rounds N]`.

Three servers of ours take turns under the same load: one as it is by default, with keys, one with nobody
who watches and without keys, and one like the first that is called over MCP, in its newest form. The first
also has an environment whose tool names three rewards, and takes turns with itself. Compared is
the CPU time of the server for a call, system calls included, which bounds its calls/s on a core and does not
depend on what else the machine does.
"""

import argparse
import asyncio
import datetime
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from bench import machine
from bench.environment import Answer, Bench
from bench.servers import ROOT
from ors import Server, TextBlock, ToolOutput, tool
from ors._protocol import API_KEY, CALL, CREATE, MCP, SESSION_ID

CONNECTIONS = 32
SECRET = "a-key-that-is-long-enough-to-be-one"
MOST, MOST_MCP = 0.10, 0.50
MCP_HEADERS = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "submit",
}
MCP_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Named(Bench):
    """The same, with the reward in three parts."""

    @tool
    async def submit(self, params: Answer) -> ToolOutput:
        """Grades an answer."""
        text = f"You answered {params.answer}."
        rewards = {"correct": 0.5, "format": 0.25, "style": 0.25}
        return ToolOutput(blocks=[TextBlock(text=text)], rewards=rewards, finished=params.final)


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
        if b"\nevent: end\n" in data or b'"isError":false' in data:
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


def _request(path: str, headers: Mapping[str, str], body: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{name}: {headers[name]}" for name in headers)]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", body]).encode()


def _owned(path: str, sid: str, body: str) -> bytes:
    return _request(path, {SESSION_ID: sid, API_KEY: SECRET}, body)


class Subject:
    """One of the servers, and how it is called."""

    def __init__(self, pid: int, port: int, environment: str, mcp: bool = False) -> None:
        self._pid, self._port, self._environment, self._mcp = pid, port, environment, mcp
        self._calls: list[bytes] = []
        self.microseconds: list[float] = []
        self.rates: list[float] = []

    def beside(self, environment: str) -> "Subject":
        """The same server, called in another environment."""
        return Subject(self._pid, self._port, environment)

    async def open(self) -> None:
        """Makes a session for each connection."""
        for number in range(CONNECTIONS):
            sid = f"{self._environment}{number}"
            task = {"env_name": self._environment, "split": "train", "index": 1}
            await self._ask(_owned(CREATE.path(), sid, json.dumps(task)))
            given = {"name": "submit", "input": {"answer": "4"}}
            self._calls.append(_owned(CALL.path(self._environment), sid, json.dumps(given)))
            if self._mcp:
                path = (await self._ask(_owned(MCP.path(), sid, ""))).partition(b'"path":"')[2]
                params = {"name": "submit", "arguments": {"answer": "4"}, "_meta": MCP_META}
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                self._calls[-1] = _request(path.partition(b'"')[0].decode(), MCP_HEADERS, json.dumps(body))

    async def _ask(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(request)
        answer = await reader.readuntil(b"}")
        assert b" 200 " in answer, answer
        writer.close()
        return answer

    async def turn(self, seconds: float) -> None:
        """Measures once."""
        loop = asyncio.get_running_loop()
        loads = []
        used, began = machine.cpu_seconds(self._pid), time.perf_counter()
        for request in self._calls:
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
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        yield Subject(process.pid, port, "bench", mcp=kind == "mcp")
    finally:
        process.kill()
        process.communicate()


async def _compare(subjects: Sequence[Subject], rounds: int, seconds: float) -> None:
    for subject in subjects:
        await subject.open()
        await subject.turn(seconds)
        subject.microseconds.clear()
        subject.rates.clear()
    for number in range(rounds):
        for subject in subjects if number % 2 else reversed(subjects):
            await subject.turn(seconds)


def _serve(kind: str) -> None:
    server = Server([Bench, Named], api_keys=[f"team={SECRET}"] if kind != "off" else [])
    if kind == "off":
        server._app.shared.observers.all.clear()
    server.runner(port=0, on_start=lambda url: print(url, flush=True)).run()


def main() -> int:
    """Measures, and says whether it is good enough."""
    parser = argparse.ArgumentParser(prog="python -m bench.cost", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--serve", choices=["on", "off", "mcp"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        _serve(given.serve)
        return 0
    with (
        _subject("on") as on,
        _subject("off") as off,
        _subject("mcp") as mcp,
        machine.pinned(machine.cores()[1]),
    ):
        named = on.beside("named")
        asyncio.run(_compare((off, on, named, mcp), given.rounds, given.seconds))
    with_all, without = statistics.median(on.microseconds), statistics.median(off.microseconds)
    # Each turn beside its neighbour: the machine changes less between two turns than over all of them.
    cost, parts, more = _more(on, off), _more(named, on), _more(mcp, on)
    print(datetime.date.today().isoformat(), machine.described())
    print(f"CPU a call: {with_all:.1f} µs with metrics, log and keys, {without:.1f} without")
    print(f"calls/s: {statistics.median(on.rates):,.0f} and {statistics.median(off.rates):,.0f}")
    print(f"cost: {cost:.1%} (at most {MOST:.0%})")
    print(f"cost of three named rewards: {parts:.1%}")
    over_mcp = statistics.median(mcp.microseconds)
    print(f"CPU a call over MCP: {over_mcp:.1f} µs, {more:.1%} more (at most {MOST_MCP:.0%})")
    return 0 if cost < MOST and more < MOST_MCP else 1


def _more(first: Subject, second: Subject) -> float:
    return statistics.median(a / b for a, b in zip(first.microseconds, second.microseconds, strict=True)) - 1


if __name__ == "__main__":
    sys.exit(main())
