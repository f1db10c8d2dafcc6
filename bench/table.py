"""The figures as a table to read."""

from bench import machine
from bench.figures import Figures, Ratio
from bench.rows import ROWS, Row
from bench.servers import SUBJECTS

HEADINGS = ("", "ours", "floor", "ors-sdk", "ours / ors-sdk", "ours / floor", "target")


def lines(figures: Figures) -> list[list[str]]:
    """The cells of every row that was measured."""
    return [_cells(figures, row) for row in ROWS if figures.has(row)]


def _cells(figures: Figures, row: Row) -> list[str]:
    values = [_value(figures.middle(row, subject), row.unit) for subject in SUBJECTS]
    ratios = [_ratio(figures.ratio(row, "reference")), _ratio(figures.ratio(row, "floor"))]
    return [row.title, *values, *ratios, _target(figures, row)]


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 2 if unit == "s" else 1 if value < 100 else 0
    return f"{value:,.{digits}f}{'' if unit == '/s' else ' '}{unit}"


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    digits = 1 if ratio.middle >= 3 else 2
    return f"{ratio.middle:.{digits}f} ({ratio.low:.{digits}f}–{ratio.high:.{digits}f})"


def _target(figures: Figures, row: Row) -> str:
    sign = "≥" if row.more_is_better else "≤"
    targets = [f"{sign} {row.reference:g}"] if row.reference is not None else []
    targets += [f"{sign} {row.floor:g} floor"] if row.floor is not None else []
    targets += [f"≤ {row.at_most:g} {row.unit}"] if row.at_most is not None else []
    if not targets:
        return ""
    verdict = "MISSED" if figures.misses(row) else "ok"
    return f"{', '.join(targets)}  {verdict}{'?' if figures.noise(row) > machine.QUIET else ''}"


def as_text(figures: Figures) -> str:
    """The table for a terminal."""
    cells = [list(HEADINGS), *lines(figures)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    rows = []
    for line in cells:
        first, *middle, last = line
        padded = [cell.rjust(width) for cell, width in zip(middle, widths[1:-1], strict=True)]
        rows.append("  ".join([first.ljust(widths[0]), *padded, last]).rstrip())
    return "\n".join(rows)


def as_markdown(figures: Figures) -> str:
    """The table for a page."""
    cells = [list(HEADINGS), ["---"] + ["---:"] * (len(HEADINGS) - 1), *lines(figures)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"
