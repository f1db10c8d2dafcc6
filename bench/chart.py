"""The figures as a picture: how many times faster than the reference, on a logarithmic scale."""

from pathlib import Path

from bench.figures import Figures
from bench.rows import ROWS, Row

OURS, LINE, TEXT = "#2a6f97", "#9aa5ab", "#33393d"


def draw(figures: Figures, caption: str, target: Path) -> bool:
    """Writes the chart as a PNG; says whether it could."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in ROWS if row.charted and figures.ratio(row, "reference") is not None]
    if not rows:
        return False
    figure, axes = pyplot.subplots(figsize=(9, 1.3 + 0.32 * len(rows)))
    for place, row in enumerate(reversed(rows)):
        _bar(axes, place, row, figures)
    axes.set_yticks(range(len(rows)), [row.title for row in reversed(rows)], color=TEXT)
    axes.set_xscale("log")
    axes.axvline(1, color=LINE, linewidth=1)
    highest = axes.get_xlim()[1]
    axes.set_xlim(min(0.8, axes.get_xlim()[0]), highest * 2)
    axes.set_title(
        "times better than ors-sdk 0.1.0: median, and spread over the rounds", fontsize=11, color=TEXT
    )
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.text(0.01, 0.01, caption, fontsize=7, color=LINE)
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(target, dpi=130)
    pyplot.close(figure)
    return True


def _bar(axes: object, place: int, row: Row, figures: Figures) -> None:
    ratio = figures.ratio(row, "reference")
    assert ratio is not None  # only such rows are drawn
    middle, low, high = ratio.middle, ratio.low, ratio.high
    if not row.more_is_better:
        middle, low, high = 1 / middle, 1 / high, 1 / low
    axes.barh(place, middle - 1, left=1, height=0.62, color=OURS)  # type: ignore[attr-defined]
    axes.plot([low, high], [place, place], color=TEXT, linewidth=1.2)  # type: ignore[attr-defined]
    label = f" {middle:.0f}×" if middle >= 10 else f" {middle:.1f}×"
    axes.text(high, place, label, va="center", fontsize=9, color=TEXT)  # type: ignore[attr-defined]
