"""A picture of a run, as SVG: outcomes, a histogram of rewards, and the mean of each split."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import assert_never
from xml.sax.saxutils import escape

from ors.rollouts.episodes.outcome import (
    OUTCOMES,
    Failed,
    Outcome,
    Refused,
    Scored,
    Truncated,
    Unscored,
    name_of,
)
from ors.rollouts.records.files import write_whole
from ors.rollouts.records.reader import Entry, Run
from ors.rollouts.records.statistics import Estimate, Row, Summary, counted, declared_range, summarize

FILE = "picture.svg"
WIDTH = 760
MARGIN = 32
HISTOGRAM = 180
"""Height of the histogram's plot."""
ROW = 26
MOST_SPLITS = 12
BINS = 20
BAR = "#3b6ea5"
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2933}.small{font-size:11px;fill:#5f6b76}"
    ".title{font-size:17px;font-weight:600}.axis{stroke:#c7ced6}.whisker{stroke:#1f2933;stroke-width:1.5}"
)


def draw(run: Run) -> Path:
    """Draws a run to `picture.svg` in its folder; returns the path."""
    path = run.folder / FILE
    write_whole(path, picture(run.folder.resolve().name, run.entries).encode())
    return path


def picture(title: str, entries: Sequence[Entry]) -> str:
    """The picture of a run, as SVG text."""
    summary = summarize(entries)
    rewards = [score for entry in entries if (score := entry.score) is not None]
    rows = summary.splits[:MOST_SPLITS]
    parts = [_heading(title, summary), _outcomes(summary, 84)]
    axis = _axis(rewards, declared_range(entries) or (0.0, 1.0))
    parts.append(
        _histogram(rewards, axis, 150) if rewards else _text(MARGIN, 180, "No episode has a reward.")
    )
    below = 150 + HISTOGRAM + 70
    parts.append(_means(rows, axis, below))
    height = below + ROW * len(rows) + 44
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{_escaped(title)}"><style>{_STYLE}</style>'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _heading(title: str, summary: Summary) -> str:
    reward = "no reward" if summary.reward is None else f"mean reward {summary.reward}"
    below = f"{reward}, {summary.size}{summary.caveats}"
    return _text(MARGIN, 40, title, "title") + _text(MARGIN, 62, below, "small")


def _outcomes(summary: Summary, top: int) -> str:
    """One bar, divided by outcome, with its legend."""
    x, label, parts = float(MARGIN), MARGIN, []
    for kind in OUTCOMES:
        outcome, color = name_of(kind), _color(kind)
        count = summary.outcomes.get(outcome, 0)
        if not count:
            continue
        width = (WIDTH - 2 * MARGIN) * count / summary.episodes
        parts.append(_box(x, top, width, 12, color))
        parts.append(_box(label, top + 22, 10, 10, color))
        parts.append(_text(label + 15, top + 31, f"{outcome} {count:,}", "small"))
        x, label = x + width, label + 130
    return "".join(parts)


def _color(kind: type[Outcome]) -> str:
    if issubclass(kind, Scored):
        return "#2f7d5b"
    if issubclass(kind, Unscored):
        return "#8a94a0"
    if issubclass(kind, Truncated):
        return "#d49a2a"
    if issubclass(kind, Refused):
        return "#7d5ba6"
    if issubclass(kind, Failed):
        return "#c0453f"
    assert_never(kind)


def _axis(rewards: Sequence[float], declared: tuple[float, float]) -> tuple[float, float]:
    """The declared range, or from 0 to 1; more if rewards need it."""
    return min([declared[0], *rewards]), max([declared[1], *rewards])


def _histogram(rewards: Sequence[float], axis: tuple[float, float], top: int) -> str:
    low, high = axis
    counts = Counter(min(int(_share(reward, axis) * BINS), BINS - 1) for reward in rewards)
    bottom, step = top + HISTOGRAM, (WIDTH - 2 * MARGIN) / BINS
    parts = [_text(MARGIN, top - 4, "Rewards of episodes"), _line(MARGIN, bottom, WIDTH - MARGIN, bottom)]
    for place, count in sorted(counts.items()):
        height = (HISTOGRAM - 24) * count / max(counts.values())
        x = MARGIN + place * step
        parts.append(_box(x + 1, bottom - height, step - 2, height, BAR))
        parts.append(_text(x + step / 2, bottom - height - 4, f"{count:,}", "small", "middle"))
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        x = MARGIN + share * (WIDTH - 2 * MARGIN)
        parts.append(_text(x, bottom + 16, f"{low + share * (high - low):.3g}", "small", anchor))
    return "".join(parts)


def _means(rows: Sequence[Row], axis: tuple[float, float], top: int) -> str:
    """One line for each split: its mean, with the interval as a whisker."""
    low, high = axis
    left, width = MARGIN + 170, WIDTH - 2 * MARGIN - 340
    parts = [_text(MARGIN, top - 14, "Mean reward of splits")]
    for number, row in enumerate(rows):
        y = top + ROW * number
        parts.append(_text(MARGIN, y + 15, row.name[:26]))
        parts.append(_line(left, y + 11, left + width, y + 11))
        if row.reward:
            ends = [left + _share(min(max(end, low), high), axis) * width for end in _reach(row.reward)]
            parts.append(_line(ends[0], y + 11, ends[1], y + 11, "whisker"))
            x = left + _share(row.reward.mean, axis) * width
            parts.append(f'<circle cx="{x:.1f}" cy="{y + 11}" r="5" fill="{BAR}"/>')
        about = (
            f"{row.reward.mean:.4g}, {counted(row.episodes - row.failed, 'episode')}"
            if row.reward
            else "no reward"
        )
        parts.append(_text(left + width + 14, y + 15, about, "small"))
    bottom = top + ROW * len(rows) + 14
    parts.append(_text(left, bottom, f"{low:.3g}", "small"))
    parts.append(_text(left + width, bottom, f"{high:.3g}", "small", "end"))
    return "".join(parts)


def _share(value: float, axis: tuple[float, float]) -> float:
    """Where a value lies on an axis, from 0 to 1. Halves, since the length of an axis may be no float."""
    low, high = axis
    return (value / 2 - low / 2) / (high / 2 - low / 2)


def _reach(estimate: Estimate) -> tuple[float, float]:
    if estimate.low is None or estimate.high is None:
        return estimate.mean, estimate.mean
    return estimate.low, estimate.high


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named} text-anchor="{anchor}">{_escaped(text)}</text>'


def _escaped(text: str) -> str:
    """The text without control characters, which XML cannot express."""
    return escape("".join(c if c.isprintable() else "�" for c in text), {'"': "&quot;"})


def _box(x: float, y: float, width: float, height: float, color: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{color}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, style: str = "axis") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'
