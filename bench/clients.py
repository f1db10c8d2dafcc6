"""Our client and the reference's against the same server: calls a second, and CPU time a call."""

import json
import subprocess
import sys

from bench import machine, reference
from bench.figures import Figures
from bench.servers import ROOT, Process, Subject, running

CONCURRENCIES = (32, 256)


def measure(figures: Figures, rounds: int, seconds: float) -> None:
    """Runs each client in a process of its own on the load's core, taking turns."""
    pythons: dict[Subject, str] = {"ours": sys.executable, "reference": str(reference.python())}
    with running("ours") as (server,):
        for concurrency in CONCURRENCIES:
            print(f"  client_{concurrency}", flush=True)
            for _ in range(rounds):
                for subject, python in pythons.items():
                    found = _run(python, server, concurrency, seconds)
                    figures.add(f"client_{concurrency}", subject, found["calls"] / found["seconds"])
                    figures.add(f"client_cpu_{concurrency}", subject, found["cpu"] / found["calls"] * 1e6)


def _run(python: str, server: Process, concurrency: int, seconds: float) -> dict[str, float]:
    command = [python, "-m", "bench.client", server.url, str(concurrency), str(seconds)]
    with machine.pinned(machine.cores()[1]):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"the client of {python} failed: {done.stderr.strip()[-300:]}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
