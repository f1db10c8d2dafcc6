"""Reward curves: the rows of a training, as a table and as a picture.

`python -m examples.training.curve grpo-*/curve.csv > curve.svg` draws several trainings together.
"""

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

COLORS = ("#3b6ea5", "#d49a2a", "#2f7d5b", "#c0453f", "#7a4fa3", "#5f6b76")
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Row:
    """One step of a training."""

    step: int
    seconds: float
    """Since the training began, without pauses between runs."""
    reward: float
    """Mean of the episodes that were learned from."""
    test: float | None
    """Mean of the test split, where it was played."""
    entropy: float
    episodes: int
    failed: int
    truncated: int | None
    """None if the trainer does not tell."""
    calls: int

    def __str__(self) -> str:
        test = "" if self.test is None else f"  test {self.test:.3f}"
        truncated = "" if self.truncated is None else f"  {self.truncated} truncated"
        failed = f"  {self.failed} failed" if self.failed else ""
        return (
            f"step {self.step:4}  {self.seconds:6.1f} s  reward {self.reward:.3f}  "
            f"entropy {self.entropy:.2f}{truncated}{failed}{test}"
        )


def write(rows: Sequence[Row], folder: Path) -> None:
    """Writes `curve.csv` and `curve.svg`."""
    with (folder / "curve.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(asdict(rows[0])))
        table.writeheader()
        table.writerows(map(asdict, rows))
    test = [(row.seconds, row.test) for row in rows if row.test is not None]
    lines = {"train": [(row.seconds, row.reward) for row in rows], "test": test}
    (folder / "curve.svg").write_text(picture(lines))


def picture(lines: Mapping[str, Points]) -> str:
    """Rewards over seconds, as SVG: one line for each entry."""
    longest = max(seconds for points in lines.values() for seconds, _ in points)
    parts = []
    for tenth in range(0, 11, 2):
        y = 320 - 28 * tenth
        parts.append(f'<path d="M60 {y}H700" stroke="#dde2e8"/><text x="26" y="{y + 4}">{tenth / 10}</text>')
    for quarter in range(5):
        text = f"{longest * quarter / 4:.0f} s"
        parts.append(f'<text x="{60 + 160 * quarter}" y="342" text-anchor="middle">{text}</text>')
    for number, (name, points) in enumerate(lines.items()):
        color = COLORS[number % len(COLORS)]
        path = " ".join(f"{60 + 640 * x / longest:.1f},{320 - 280 * y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.append(f'<text x="{60 + 105 * number}" y="24" fill="{color}">{name}</text>')
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 740 356" role="img" aria-label="rewards">'
        "<style>text{font:13px system-ui,sans-serif}</style>"
        f'<rect width="740" height="356" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def summary(rows: Sequence[Row]) -> str:
    """A training in a line. Episodes and calls are those of the training, without the test split."""
    last, tests = rows[-1], [row.test for row in rows if row.test is not None]
    reward = fmean(row.reward for row in rows[-5:])
    test = f", {tests[-1]:.3f} on the test split" if tests else ""
    return (
        f"{last.step} steps in {last.seconds:.0f} s. Reward {reward:.3f} in the last five{test}. "
        f"{sum(row.episodes for row in rows):,} episodes, "
        f"{sum(row.calls for row in rows):,} tool calls, {sum(row.failed for row in rows):,} failed."
    )


def read(path: Path) -> Points:
    """The rewards of a training that was written."""
    with path.open(newline="") as file:
        return [(float(row["seconds"]), float(row["reward"])) for row in csv.DictReader(file)]


if __name__ == "__main__":
    print(picture({Path(given).parent.name: read(Path(given)) for given in sys.argv[1:]}), end="")
