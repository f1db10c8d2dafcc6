"""The figures of `bench.peers` as a picture: steps a second of each package, side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path

COLOURS = ("#2a6f97", "#8fb8cf", "#c9cfd3")
LINE, TEXT = "#9aa5ab", "#33393d"
HEIGHT = 0.27
"""Of a bar, where a group of bars is 1 high."""


def draw(rates: Mapping[str, Sequence[float]], groups: Sequence[str], caption: str, target: Path) -> None:
    """Writes the chart as a PNG: for each group of bars, one bar for each name in `rates`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 1.0 + 0.62 * len(groups)))
    for number, (name, values) in enumerate(rates.items()):
        places = [group + (number - 1) * (HEIGHT + 0.02) for group in range(len(groups))]
        axes.barh(places, values, height=HEIGHT, color=COLOURS[number], label=name)
        for place, value in zip(places, values, strict=True):
            axes.text(value, place, f" {value:,.0f}", va="center", fontsize=8, color=TEXT)
    axes.set_yticks(range(len(groups)), groups, color=TEXT)
    axes.invert_yaxis()
    axes.set_title("steps per second, each package with its own server and client", fontsize=11, color=TEXT)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.margins(x=0.12)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(frameon=False, loc="lower right")
    figure.text(0.01, 0.01, caption, fontsize=7, color=LINE)
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(target, dpi=130)
    pyplot.close(figure)
