"""Ten thousand idle sessions, pinged by their clients: `python -m bench.idle [--sessions N] [--seconds S]`.

The server has one core to itself, the clients another. Measured: its share of that core, and how long a call
of someone else takes meanwhile, by a process of its own.
"""

import argparse
import asyncio
import datetime
import http.client
import json
import sys
import time
from urllib.parse import urlsplit

from bench import machine
from bench.watched import Watched, watched
from ors._protocol import CALL, CREATE, SESSION_ID
from ors.client import AsyncORS, Task

OPENED_AT_ONCE = 100
PROBE_SECONDS = 0.01
MOST_CPU = 0.25
MOST_P99_SECONDS = 0.05


def probe(url: str, seconds: float) -> list[float]:
    """How long calls take, one after the other, on a connection that is kept."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    headers = {SESSION_ID: "probe"}
    _ask(connection, CREATE.path(), {"env_name": "rough", "task_spec": {}}, headers)
    took = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        began = time.perf_counter()
        _ask(connection, CALL.path("rough"), {"name": "echo", "input": {"call": 0}}, headers)
        took.append(time.perf_counter() - began)
        time.sleep(PROBE_SECONDS)
    return took


def _ask(connection: http.client.HTTPConnection, path: str, body: object, headers: dict[str, str]) -> None:
    connection.request("POST", path, json.dumps(body), headers)
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path} answered {answer.status}")


async def _measure(server: Watched, count: int, seconds: float) -> tuple[float, list[float], int]:
    async with AsyncORS(server.url) as client:
        rough = client.environment("rough")
        sessions = []
        for _ in range(0, count, OPENED_AT_ONCE):
            fresh = [rough.session(Task("rough", {})) for _ in range(min(OPENED_AT_ONCE, count))]
            sessions += await asyncio.gather(*(session.start() for session in fresh))
        await asyncio.sleep(10)  # until each has been pinged, and will be again
        used, began = server.cpu_seconds, time.monotonic()
        prober = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.idle", "--probe", server.url, "--seconds", str(seconds),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        told, _ = await prober.communicate()
        share = (server.cpu_seconds - used) / (time.monotonic() - began)
        alive = sum(session.kept for session in sessions)
        server.process.kill()  # faster than to close ten thousand
        return share, sorted(json.loads(told)), alive


def main() -> int:
    """Measures, and says whether it is good enough."""
    parser = argparse.ArgumentParser(prog="python -m bench.idle", description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--probe", metavar="URL", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.probe:
        print(json.dumps(probe(given.probe, given.seconds)))
        return 0
    machine.allow_many_files()
    server_core, clients_core = machine.cores()
    noise = machine.Noise()
    with watched({"idle_seconds": 60}, core=server_core) as server, machine.pinned(clients_core):
        share, took, alive = asyncio.run(_measure(server, given.sessions, given.seconds))
    p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
    print(datetime.date.today().isoformat(), machine.described(), f"; noise unknown to {noise.share(0):.0%}")
    print(f"{alive:,} of {given.sessions:,} sessions alive; the server takes {share:.1%} of its core")
    print(f"{len(took):,} calls meanwhile: median {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms")
    good = alive == given.sessions and share < MOST_CPU and p99 < MOST_P99_SECONDS
    print("good" if good else "not good enough")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
