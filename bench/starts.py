"""What it takes until there is something to call: imports, and a server's start."""

import subprocess
import time

from bench import machine
from bench.figures import Figures
from bench.servers import ROOT, SUBJECTS, Subject, python_of, running

IMPORTS = {
    "import_ors": "import ors",
    "import_author": "from ors import Environment, TextBlock, ToolOutput, tool",
    "import_client": "from ors.client import ORS",
}


def measure(figures: Figures, rounds: int) -> None:
    """Times whole processes, the packages taking turns. The first, uncounted one fills the file caches."""
    print("  imports and start-up", flush=True)
    packages: tuple[Subject, ...] = ("ours", "reference")
    for number in range(rounds + 1):
        for row, statement in IMPORTS.items():
            for subject in packages:
                seconds, noise = _timed([*python_of(subject), "-c", statement])
                if number:
                    figures.add(row, subject, seconds * 1e3, noise)
        for subject in SUBJECTS if number else ():
            noise_meanwhile = machine.Noise()
            with running(subject) as (server,):
                noise = noise_meanwhile.share(machine.cpu_seconds(server.pid))
                figures.add("startup", subject, server.started_in * 1e3, noise)


def _timed(command: list[str]) -> tuple[float, float]:
    """Seconds that a command takes, and what others took of the machine meanwhile."""
    with machine.pinned(machine.cores()[0]):
        noise, cpu, began = machine.Noise(), machine.children_seconds(), time.perf_counter()
        subprocess.run(command, cwd=ROOT, check=True)
        seconds = time.perf_counter() - began
        return seconds, noise.share(machine.children_seconds() - cpu)
