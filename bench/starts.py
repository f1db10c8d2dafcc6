"""What it takes until there is something to call: imports, and a server's start."""

import subprocess
import sys
import time

from bench import machine, reference
from bench.figures import Figures
from bench.servers import ROOT, SUBJECTS, Subject, running

IMPORTS = {"import_ors": "import ors", "import_client": "from ors.client import ORS"}


def measure(figures: Figures, rounds: int) -> None:
    """Times whole processes, the packages taking turns. The first, uncounted one fills the file caches."""
    print("  imports and start-up", flush=True)
    pythons: dict[Subject, str] = {"ours": sys.executable, "reference": str(reference.python())}
    for number in range(rounds + 1):
        for row, statement in IMPORTS.items():
            for subject, python in pythons.items():
                seconds = _timed([python, "-c", statement])
                if number:
                    figures.add(row, subject, seconds * 1e3)
        for subject in SUBJECTS:
            with running(subject) as (server,):
                if number:
                    figures.add("startup", subject, server.started_in * 1e3)


def _timed(command: list[str]) -> float:
    with machine.pinned(machine.cores()[0]):
        began = time.perf_counter()
        subprocess.run(command, cwd=ROOT, check=True)
        return time.perf_counter() - began
