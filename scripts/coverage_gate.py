"""The coverage gate: fails if the tests run too few lines of `src/ors`. `make coverage` has measured them."""

import json
import sys
from pathlib import Path
from typing import Any

LEAST_IN_TOTAL = 95.0
LEAST_PER_MODULE = 85.0
SHOWN_BELOW = 90.0


def _lines(summary: dict[str, Any]) -> float:
    return float(summary["percent_statements_covered"])


def main(report: str) -> None:
    measured = json.loads(Path(report).read_text())
    total = measured["totals"]
    modules = sorted((_lines(file["summary"]), name, file) for name, file in measured["files"].items())
    print(f"{len(modules)} modules. Under {SHOWN_BELOW:g}% of lines:")
    for share, name, file in modules:
        if share < SHOWN_BELOW:
            branches = file["summary"]["percent_branches_covered"]
            missing = " ".join(map(str, file["missing_lines"]))
            print(f"  {share:5.1f}% lines  {branches:5.1f}% branches  {name}  {missing}")
    print(f"  {_lines(total):5.1f}% lines  {total['percent_branches_covered']:5.1f}% branches  in total")
    low = [name for share, name, _ in modules if share < LEAST_PER_MODULE]
    if _lines(total) < LEAST_IN_TOTAL or low:
        sys.exit(
            f"Coverage must be {LEAST_IN_TOTAL:g}% of lines in total and {LEAST_PER_MODULE:g}% per module."
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
