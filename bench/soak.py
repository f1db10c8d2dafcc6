"""A thousand clients on one server, for long: `python -m bench.soak [--seconds S] [--clients N]`.

They churn sessions, cut connections, stop reading, vanish; tools raise, hang and exceed their time. In the
end nothing of them may be left in the server, and every call must have had one outcome, on both sides.
"""

import argparse
import asyncio
import datetime
import statistics
import sys
import time

import aiohttp

from bench import machine
from bench.crowd import STOPPED_AT_ONCE, STOPPED_SECONDS, Crowd
from bench.watched import Left, Watched, watched
from ors.client import AsyncORS

SETTLING_SECONDS = 90.0
"""What idle sessions, kept results and warm threads need to go away."""
WARM_SECONDS = 60.0
GROWTH = 1.10
LIMITS = {
    "idle_seconds": 30,
    "setup_seconds": 1,
    "teardown_seconds": 1,
    "kept_bytes": 128 * 2**20,
}


class Memory:
    """The server's memory, twice a second."""

    def __init__(self, server: Watched) -> None:
        self._server = server
        self._began = time.monotonic()
        self.samples: list[tuple[float, float]] = []

    async def watch(self) -> None:
        """Looks until it is cancelled."""
        while True:
            self.samples.append((time.monotonic() - self._began, self._server.megabytes))
            await asyncio.sleep(0.5)

    def from_second(self, second: float) -> float:
        """The mean of 40 seconds: single samples depend on how many long results are just being read."""
        return statistics.fmean(size for at, size in self.samples if 0 <= at - second <= STOPPED_SECONDS)


async def _churn(server: Watched, clients: int, seconds: float, pace: float) -> tuple[Crowd, Memory]:
    memory = Memory(server)
    watching = asyncio.create_task(memory.watch())
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with AsyncORS(server.url) as client, aiohttp.ClientSession(connector=connector) as http:
        crowd = Crowd(server.url, client, http, pace)
        living = [asyncio.create_task(crowd.live(seed)) for seed in range(clients)]
        living += [asyncio.create_task(crowd.stop_reading(number)) for number in range(STOPPED_AT_ONCE)]
        await asyncio.sleep(seconds)
        watching.cancel()
        crowd.stop.set()
        _, late = await asyncio.wait(living, timeout=2 * STOPPED_SECONDS)
        crowd.ledger.wrong += [f"{len(late)} clients hang"] if late else []
        for task in late:
            task.cancel()
    return crowd, memory


async def _unaccounted(server: Watched, crowd: Crowd, left: Left) -> list[str]:
    """Where the two sides do not agree."""
    found, ledger = await server.metrics(), crowd.ledger
    counted = sum(value for key, value in found.items() if key[:2] == ("ors_calls_total", "rough"))
    closed = sum(value for key, value in found.items() if key[:2] == ("ors_sessions_closed_total", "rough"))
    pairs = {
        "calls, by the clients and by the server's metrics": (ledger.calls, counted),
        "calls, and their outcomes": (ledger.calls, sum(ledger.outcomes.values())),
        "calls that ran, by the clients and in the server": (ledger.ran, left.ran),
        "calls that ran again": (0, left.ran_again),
        "sessions, created and closed": (ledger.sessions, closed),
    }
    return [f"{what}: {ours} and {theirs:.0f}" for what, (ours, theirs) in pairs.items() if ours != theirs]


async def _measure(server: Watched, clients: int, seconds: float, pace: float) -> list[str]:
    before = await server.left()
    used = server.cpu_seconds
    crowd, memory = await _churn(server, clients, seconds, pace)
    wrong = crowd.ledger.wrong
    if not server.alive:
        return [*wrong, f"the server ended: {server.errors()[-2000:]}"]
    busy = server.cpu_seconds - used
    left = await server.settled(before, SETTLING_SECONDS)
    beyond = left.beyond(before)
    wrong += [f"left behind: {beyond}"] if beyond else []
    wrong += await _unaccounted(server, crowd, left)
    last = max(0.0, seconds - STOPPED_SECONDS)
    early, late = memory.from_second(min(WARM_SECONDS, last)), memory.from_second(last)
    if late > early * GROWTH:
        wrong.append(f"memory grew from {early:.0f} to {late:.0f} MB")
    ledger = crowd.ledger
    print(f"{ledger.calls:,} calls in {ledger.sessions:,} sessions of {clients} clients in {seconds:.0f} s")
    print(f"outcomes: {dict(ledger.outcomes.most_common())}")
    print(
        f"memory: {early:.0f} MB after a minute, {late:.0f} MB at the end, {left.megabytes:.0f} MB when idle"
    )
    print(f"before: {before}\nafter:  {left}\nserver: {busy / seconds:.0%} of a core")
    return wrong


def main() -> int:
    """Soaks, and tells what was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--pace", type=float, default=2.0, help="seconds between two episodes of a client")
    given = parser.parse_args()
    machine.allow_many_files()
    print(datetime.date.today().isoformat(), machine.described())
    with watched(LIMITS, log_level="CRITICAL") as server:
        wrong = asyncio.run(_measure(server, given.clients, given.seconds, given.pace))
    for one in wrong[:50]:
        print(f"wrong: {one}", file=sys.stderr)
    print("nothing is wrong" if not wrong else f"{len(wrong)} things are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
