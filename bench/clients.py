"""Our client and the reference's against the same server: calls a second, and CPU time a call."""

import json
import subprocess

from bench import machine
from bench.figures import Figures
from bench.servers import ROOT, Process, Subject, python_of, running


def measure(figures: Figures, concurrencies: tuple[int, ...], rounds: int, seconds: float) -> None:
    """Runs each client in a process of its own on the load's core, taking turns."""
    subjects: tuple[Subject, ...] = ("ours", "reference")
    with running("ours") as (server,):
        for concurrency in concurrencies:
            print(f"  client_{concurrency}", flush=True)
            for _ in range(rounds):
                for subject in subjects:
                    noise, cpu = machine.Noise(), _cpu(server)
                    found = _run(subject, server, concurrency, seconds)
                    share = noise.share(_cpu(server) - cpu)
                    rate, cost = found["calls"] / found["seconds"], found["cpu"] / found["calls"] * 1e6
                    figures.add(f"client_{concurrency}", subject, rate, share)
                    figures.add(f"client_cpu_{concurrency}", subject, cost, share)


def _cpu(server: Process) -> float:
    return machine.children_seconds() + machine.cpu_seconds(server.pid)


def _run(subject: Subject, server: Process, concurrency: int, seconds: float) -> dict[str, float]:
    command = [*python_of(subject), "-m", "bench.client", server.url, str(concurrency), str(seconds)]
    with machine.pinned(machine.cores()[1]):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"the client {subject!r} failed: {done.stderr.strip()[-300:]}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
