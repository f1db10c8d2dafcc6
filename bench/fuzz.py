"""A fuzzer of the server, from outside: `python -m bench.fuzz [--requests N] [--seconds S] [--seed N]`.

Many connections send pipelined requests that nobody should send, others drip theirs byte by byte. The server
must answer none of them with 5xx, must not hang, end or grow, and must hold nothing when they are gone.
"""

import argparse
import asyncio
import random
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from bench import machine
from bench.hostile import Hostile
from bench.watched import Watched, watched

CONNECTIONS = 8
DRIPPING = 40
BATCH = 40
PATIENCE = 20.0
"""An answer that takes longer than this does not come."""
SETTLING_SECONDS = 60.0
GROWTH = 1.10
LIMITS = {
    "sessions": 300,
    "idle_seconds": 2,
    "kept_seconds": 2,
    "tool_seconds": 1,
    "calls": 500,
    "body_bytes": 2**20,
}
LAST = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


@dataclass
class Findings:
    """What came of it."""

    sent: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def take(self, batch: bytes, answers: bytes, count: int) -> None:
        """Counts the answers to a batch."""
        self.sent += count or 1
        given = len(_STATUS.findall(answers))
        if count and given < count:
            self.wrong.append(f"{given} answers to {count} requests: {batch!r}: {answers[-500:]!r}")
        for status in map(int, _STATUS.findall(answers)):
            self.statuses[status] += 1
            if status >= 500:
                self.wrong.append(f"{status} to {batch!r}: {answers[-500:]!r}")


class Fuzz:
    """One run against one server."""

    def __init__(self, port: int, requests: int, seconds: float, seed: int) -> None:
        self._port = port
        self._requests = requests
        self._deadline = time.monotonic() + seconds
        self._seed = seed
        self.found = Findings()

    @property
    def over(self) -> bool:
        """Whether enough was sent."""
        enough = self.found.sent >= self._requests or time.monotonic() > self._deadline
        return enough or len(self.found.wrong) > 20

    async def run(self, server: Watched) -> list[float]:
        """Sends everything; gives the megabytes of the server, second by second."""
        dripping = [asyncio.create_task(self._drip(n)) for n in range(DRIPPING)]
        sending = [asyncio.create_task(self._send(Hostile(self._seed + n))) for n in range(CONNECTIONS)]
        memory = []
        while not all(task.done() for task in sending):
            await asyncio.sleep(1)
            memory.append(server.megabytes)
        for task in dripping:
            task.cancel()
        await asyncio.gather(*sending)
        await asyncio.gather(*dripping, return_exceptions=True)
        return memory

    async def _send(self, hostile: Hostile) -> None:
        while not self.over:
            whole = [hostile.request() for _ in range(BATCH)]
            await self._exchange(b"".join(whole) + LAST, BATCH + 1)
            for _ in range(BATCH // 4):  # each on a connection of its own, which is closed upon it
                await self._exchange(hostile.broken(), 0)

    async def _exchange(self, batch: bytes, count: int) -> None:
        """Sends requests, of which `count` are whole and must be answered."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError as error:
            self.found.wrong.append(f"cannot connect: {error}")
            return
        answers = bytearray()
        try:
            async with asyncio.timeout(PATIENCE):
                writer.write(batch)
                if not count:
                    writer.write_eof()  # so that a request cut short is over too
                while part := await reader.read(2**16):
                    answers += part
        except TimeoutError:
            self.found.wrong.append(f"no end of the answers to {batch!r}: {bytes(answers[-500:])!r}")
        except OSError:
            pass  # it closed while we were still sending, as it may
        finally:
            writer.transport.abort()
        self.found.take(batch, bytes(answers), count)

    async def _drip(self, seed: int) -> None:
        chosen, hostile = random.Random(seed), Hostile(10_000 + seed)
        while True:
            _, writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                for byte in hostile.request():
                    writer.write(bytes((byte,)))
                    await asyncio.sleep(chosen.uniform(0.01, 0.5))
                    if writer.is_closing():
                        break
            finally:
                writer.transport.abort()


def _grown(memory: list[float]) -> str:
    early, late = memory[len(memory) // 3], memory[-1]
    return f"grew from {early:.0f} to {late:.0f} MB" if len(memory) > 9 and late > early * GROWTH else ""


async def _measure(server: Watched, requests: int, seconds: float, seed: int) -> list[str]:
    before = await server.left()
    fuzz = Fuzz(server.port, requests, seconds, seed)
    began, used = time.monotonic(), server.cpu_seconds
    memory = await fuzz.run(server)
    took = time.monotonic() - began
    wrong = fuzz.found.wrong
    if not server.alive:
        return [*wrong, f"the server ended: {server.errors()[-2000:]}"]
    beyond = (await server.settled(before, SETTLING_SECONDS)).beyond(before)
    wrong += [f"left behind: {beyond}"] if beyond else []
    wrong += [text] if (text := _grown(memory)) else []
    wrong += [f"logged: {server.errors()[-2000:]}"] if "Traceback" in _unexpected(server) else []
    print(
        f"{fuzz.found.sent:,} requests in {took:.0f} s, {server.cpu_seconds - used:.0f} s of the server's CPU"
    )
    print(f"answers: {dict(sorted(fuzz.found.statuses.items()))}; seed {seed}")
    early, late = memory[len(memory) // 3], memory[-1]
    print(f"memory: {before.megabytes:.0f} MB before, {early:.0f} early, {late:.0f} late")
    return wrong


def _unexpected(server: Watched) -> str:
    """What was logged apart from tools that raise, as they should."""
    return "".join(line for line in server.errors().split("ERROR:") if "failed, as asked" not in line)


def main() -> int:
    """Fuzzes, and tells what was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=900.0, help="not longer than this")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    machine.allow_many_files()
    with watched(LIMITS) as server:
        wrong = asyncio.run(_measure(server, given.requests, given.seconds, given.seed))
    for one in wrong:
        print(f"wrong: {one}", file=sys.stderr)
    print("nothing is wrong" if not wrong else f"{len(wrong)} things are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
