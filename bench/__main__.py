"""The comparison: `python -m bench`, or `python -m bench --quick` in under a minute."""

import argparse
import datetime
import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench import clients, crowds, load, machine, reference, starts, table, throughput
from bench.figures import Figures
from bench.rows import ROWS
from bench.servers import ROOT

RESULTS = Path(__file__).with_name("results")
PARTS = ("calls", "memory", "slow", "starts", "clients")


@dataclass(frozen=True, slots=True)
class Size:
    """How thorough a comparison is."""

    rounds: int
    seconds: float
    sessions: int
    crowds: tuple[int, ...]
    crowd_rounds: int
    start_rounds: int
    concurrencies: tuple[int, ...]
    client_rounds: int
    patience: float


WHOLE = Size(5, 1.5, 10_000, (1000, 5000), 2, 7, (32, 256), 5, 120)
QUICK = Size(3, 0.15, 500, (1000,), 1, 2, (32,), 2, 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: under a minute")
    parser.add_argument("--only", choices=PARTS, action="append", help="one part; may be given again")
    parser.add_argument("--rows", default="", metavar="PREFIX", help="of the calls, only such rows")
    parser.add_argument("--patience", type=float, help="seconds to wait, in all, for quiet moments")
    parser.add_argument("--publish", action="store_true", help="copy the table to docs/")
    return parser.parse_args()


def _measure(figures: Figures, size: Size, parts: tuple[str, ...], rows: str, patience: float | None) -> None:
    waits = throughput.Patience(size.patience if patience is None else patience)
    measures = {
        "calls": lambda: throughput.measure(figures, size.rounds, size.seconds, waits, rows),
        "memory": lambda: crowds.measure_memory(figures, size.sessions),
        "slow": lambda: crowds.measure_slow_calls(figures, size.crowds, size.crowd_rounds),
        "starts": lambda: starts.measure(figures, size.start_rounds),
        "clients": lambda: clients.measure(figures, size.concurrencies, size.client_rounds, size.seconds),
    }
    for part in parts:
        began = time.monotonic()
        measures[part]()
        print(f"{part}: {time.monotonic() - began:.0f} s", flush=True)
        _keep_values(figures)  # at once: what comes next may fail, and this took minutes


def _caption(figures: Figures) -> str:
    about = machine.described()
    noise = f"; others took {figures.noise():.0%} of the machine"
    day = datetime.date.today().isoformat()
    return (
        f"{day}, {about['processor']}, {about['memory']}, Python {about['python']}, one core a server{noise}"
    )


def _keep_values(figures: Figures) -> None:
    RESULTS.mkdir(exist_ok=True)
    made = {"about": machine.described(), "caption": _caption(figures), "rows": figures.as_json()}
    (RESULTS / "bench.json").write_text(json.dumps(made, indent=1))


def _keep(figures: Figures, caption: str, publish: bool) -> None:
    (RESULTS / "bench.md").write_text(f"# Speed\n\n{table.as_markdown(figures)}\n{caption}\n")
    print(f"kept in {RESULTS.relative_to(ROOT)}/: bench.json, bench.md")
    if publish:
        shutil.copyfile(RESULTS / "bench.md", ROOT / "docs" / "bench.md")


def main() -> int:
    """Measures, prints and keeps."""
    given = _arguments()
    size = QUICK if given.quick else WHOLE
    figures = Figures()
    began = time.monotonic()
    if len(set(machine.cores())) == 1:
        print("one core only: server and load share it, so the figures are too low")
    machine.allow_many_files()
    try:
        load.program()
        reference.python()
        _measure(figures, size, tuple(given.only or PARTS), given.rows, given.patience)
    except (load.NoCompiler, load.WrongAnswer, RuntimeError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    caption = _caption(figures)
    print(f"\n{table.as_text(figures)}\n\n{caption}; {time.monotonic() - began:.0f} s")
    if any(figures.has(row) and figures.noise(row) > machine.QUIET for row in ROWS):
        print("?: the machine was not quiet meanwhile; of these, the CPU times say more than the rates")
    for row in ROWS:
        for miss in figures.misses(row):
            print(f"missed: {row.title}: {miss}")
    _keep(figures, caption, given.publish)
    return 0


if __name__ == "__main__":
    sys.exit(main())
