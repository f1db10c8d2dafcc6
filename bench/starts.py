"""What it takes until there is something to use: imports, a command's help, a server's start."""

import subprocess
import time
from collections.abc import Iterator

from bench import machine
from bench.figures import Figures
from bench.servers import ROOT, SUBJECTS, Subject, python_of, running

COMMANDS = {
    "import_ors": ["-c", "import ors"],
    "import_author": ["-c", "from ors import Environment, TextBlock, ToolOutput, tool"],
    "import_client": ["-c", "from ors.client import ORS"],
    "help": ["-m", "ors", "--help"],
}
OURS_ALONE = {"help"}
"""The reference has no command line."""


def measure(figures: Figures, rounds: int, subjects: tuple[Subject, ...] = SUBJECTS) -> None:
    """Times whole processes, the packages taking turns. The first, uncounted one fills the file caches."""
    print("  imports, help and start-up", flush=True)
    for number in range(rounds + 1):
        for row, subject in _order(subjects):
            seconds, noise = _timed([*python_of(subject), *COMMANDS[row]])
            if number:
                figures.add(row, subject, seconds * 1e3, noise)
        for subject in subjects if number else ():
            noise_meanwhile = machine.Noise()
            with running(subject) as (server,):
                noise = noise_meanwhile.share(machine.cpu_seconds(server.pid))
                figures.add("startup", subject, server.started_in * 1e3, noise)


def _order(subjects: tuple[Subject, ...]) -> Iterator[tuple[str, Subject]]:
    for row in COMMANDS:
        for subject in subjects:
            if subject == "ours" or (subject == "reference" and row not in OURS_ALONE):
                yield row, subject


def _timed(command: list[str]) -> tuple[float, float]:
    """Seconds that a command takes, and what others took of the machine meanwhile."""
    with machine.pinned(machine.cores()[0]):
        noise, cpu, began = machine.Noise(), machine.children_seconds(), time.perf_counter()
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - began
        return seconds, noise.share(machine.children_seconds() - cpu)
