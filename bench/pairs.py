"""This tree beside another revision of it: `python -m bench.pairs REVISION`.

Both servers run at once and take turns, so that each round compares two neighbouring moments of the machine.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from bench import load, machine, plans
from bench.servers import ROOT, Process
from bench.throughput import LOADS, Load

Ratios = dict[str, list[float]]


def _unpack(revision: str, folder: Path) -> None:
    archive = folder / "tree.tar"
    subprocess.run(["git", "archive", "-o", str(archive), revision], cwd=ROOT, check=True)
    subprocess.run(["tar", "-xf", str(archive)], cwd=folder, check=True)


def _measure(kind: Load, new: Process, old: Process, rounds: int, seconds: float) -> Ratios:
    """The ratios of the new tree to the old one, of every row and round."""
    ratios: Ratios = defaultdict(list)
    for number in range(rounds):
        turns = (new, old) if number % 2 else (old, new)
        samples = {server: load.run(server, kind.plan, kind.connections, seconds) for server in turns}
        for row, value in kind.rows.items():
            ratios[row].append(value(samples[new]) / value(samples[old]))
        ratios[f"{next(iter(kind.rows))} (CPU)"].append(samples[new].cpu_us / samples[old].cpu_us)
    return ratios


def _print(ratios: Ratios) -> None:
    for row, found in ratios.items():
        low, middle, high = statistics.quantiles(found, n=4)
        error = 1.25 * statistics.stdev(found) / len(found) ** 0.5
        print(
            f"{row:24} {middle:6.3f} ± {error:.3f}   half of the rounds: {low:.3f} to {high:.3f}", flush=True
        )


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench.pairs", description=__doc__)
    parser.add_argument("revision", help="what this tree is compared with")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.5, help="of load on each server in a round")
    parser.add_argument("--rows", default="", metavar="PREFIX", help="only such rows")
    given = parser.parse_args()
    machine.allow_many_files()
    loads = [kind for kind in LOADS if any(row.startswith(given.rows) for row in kind.rows)]
    with tempfile.TemporaryDirectory() as folder:
        _unpack(given.revision, Path(folder))
        new, old = Process("ours"), Process("ours", Path(folder))
        try:
            for server in (new, old):
                load.run(server, plans.calls(plans.SUBMIT), 8, seconds=0.5)  # warm
            print(f"this tree / {given.revision}: medians of {given.rounds} rounds")
            for kind in loads:
                _print(_measure(kind, new, old, given.rounds, given.seconds))
        finally:
            new.stop()
            old.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
