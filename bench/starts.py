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
                seconds = _timed([*python_of(subject), "-c", statement])
                if number:
                    figures.add(row, subject, seconds * 1e3)
        for subject in SUBJECTS if number else ():
            with running(subject) as (server,):
                figures.add("startup", subject, server.started_in * 1e3)


def _timed(command: list[str]) -> float:
    with machine.pinned(machine.cores()[0]):
        began = time.perf_counter()
        subprocess.run(command, cwd=ROOT, check=True)
        return time.perf_counter() - began
