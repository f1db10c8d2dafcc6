"""Selections of recorded episodes: filters and orders, the spread of rewards, two runs task by task."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, assert_never

from ors.errors import BadRequest
from ors.rollouts import Failed, Refused, Scored, TaskKey, Truncated, Unscored
from ors.rollouts.records import Entry
from ors.rollouts.records.statistics import mean_of
from ors.server.http.requests import Request

Row = TypeVar("Row")
Order = Callable[[Row], Any]

MOST_VALUES = 12
"""With more different rewards than this, the bars of a histogram are ranges."""
RANGES = 20
SHOWN = ("", "better", "worse", "same", "alone")
"""Which tasks of two runs are listed; "alone" are those that only one run has rewards of."""

ORDERS: Mapping[str, Order[Entry]] = {
    "started": lambda entry: entry.started,
    "task": lambda entry: (entry.task.order, entry.sample),
    "outcome": lambda entry: (entry.outcome.type, detail(entry)),
    "reward": lambda entry: entry.score,
    "calls": lambda entry: entry.calls,
    "tokens": lambda entry: tokens(entry),
    "seconds": lambda entry: entry.seconds,
}


def tokens(entry: Entry) -> int:
    return entry.usage.input_tokens + entry.usage.output_tokens


def detail(entry: Entry) -> str:
    """The limit of a truncated episode; of a failed one, who failed and at which stage."""
    outcome = entry.outcome
    match outcome:
        case Scored() | Unscored() | Refused():
            return ""
        case Truncated():
            return outcome.limit
        case Failed():
            return f"{outcome.who} {outcome.stage}"
        case _:
            assert_never(outcome)


@dataclass(frozen=True, slots=True)
class Sorting:
    by: str
    down: bool

    @classmethod
    def asked(cls, request: Request, orders: Mapping[str, object], otherwise: str) -> "Sorting":
        sort = request.asked("sort") or otherwise
        if sort.removeprefix("-") not in orders:
            raise BadRequest(
                f"sort: expected one of {', '.join(orders)}; with - before it, the largest is first"
            )
        return cls(sort.removeprefix("-"), sort.startswith("-"))

    def apply(self, rows: Iterable[Row], key: Order[Row]) -> list[Row]:
        """The rows in order. Those without a value come last."""
        keyed = [(key(row), row) for row in rows]
        valued = sorted(
            (pair for pair in keyed if pair[0] is not None), key=lambda pair: pair[0], reverse=self.down
        )
        return [row for _, row in valued] + [row for value, row in keyed if value is None]


@dataclass(frozen=True, slots=True)
class Selection:
    """The episodes that a reader has selected, and their order."""

    sorting: Sorting
    outcome: str
    """A type of outcome, and perhaps more of it, such as "failed environment"."""
    words: tuple[str, ...]
    """Words that the task, the agent or the id contain."""
    reward: tuple[float, float] | None
    calls: tuple[float, float] | None

    @classmethod
    def asked(cls, request: Request) -> "Selection":
        return cls(
            Sorting.asked(request, ORDERS, "started"),
            request.asked("outcome"),
            tuple(request.asked("task").casefold().split()),
            _bounds(request, "reward"),
            _bounds(request, "calls"),
        )

    def with_any_reward(self, entries: Iterable[Entry]) -> list[Entry]:
        """The episodes that pass every filter but that of the reward."""
        return [entry for entry in entries if self._has(entry)]

    def apply(self, entries: Iterable[Entry]) -> list[Entry]:
        found = self.with_any_reward(entry for entry in entries if _within(entry.score, self.reward))
        return self.sorting.apply(found, ORDERS[self.sorting.by])

    def _has(self, entry: Entry) -> bool:
        return (
            (not self.outcome or f"{entry.outcome.type} {detail(entry)} ".startswith(f"{self.outcome} "))
            and _within(entry.calls, self.calls)
            and (not self.words or has_words(f"{label(entry.task)} {entry.agent} {entry.id}", self.words))
        )


def label(task: TaskKey) -> str:
    return f"{task.environment} {task.label}"


def has_words(text: str, words: Sequence[str]) -> bool:
    """Whether a text contains all words, in small or capital letters."""
    folded = text.casefold()
    return all(word in folded for word in words)


def _bounds(request: Request, name: str) -> tuple[float, float] | None:
    low, high = request.asked(f"{name}_from"), request.asked(f"{name}_to")
    if not low and not high:
        return None
    try:
        return float(low or -math.inf), float(high or math.inf)
    except ValueError:
        raise BadRequest(f"{name}_from, {name}_to: expected numbers") from None


def _within(value: float | None, bounds: tuple[float, float] | None) -> bool:
    return bounds is None or (value is not None and bounds[0] <= value <= bounds[1])


def rewards(entries: Iterable[Entry]) -> list[float]:
    """What the episodes count as. Failed ones are left out."""
    return [score for entry in entries if (score := entry.score) is not None]


def histogram(*series: Sequence[float], declared: tuple[float, float] | None = None) -> list[dict[str, Any]]:
    """Counts each series in the same bars: one for each value, or ranges if there are many values.

    The ranges cover what the environment has `declared`, also where there is no reward.
    """
    values = sorted({_rounded(value) for one in series for value in one})
    if len(values) <= MOST_VALUES:
        starts, ends = values, values
    else:
        low, *_, high = sorted({*values, *(declared or ())})
        starts = [low + n * (high - low) / RANGES for n in range(RANGES)]
        ends = [*starts[1:], high]
    within: list[list[list[float]]] = [[[] for _ in series] for _ in starts]
    for n, one in enumerate(series):
        for value in one:
            within[bisect_right(starts, _rounded(value)) - 1][n].append(value)
    return [_bar(*bar) for bar in zip(starts, ends, within, strict=True)]


def _rounded(value: float) -> float:
    return float(f"{value:.9g}")  # sums such as 0.1 + 0.2 are no values of their own


def _bar(start: float, end: float, series: Sequence[Sequence[float]]) -> dict[str, Any]:
    values = [value for one in series for value in one]
    least, most = min(values, default=None), max(values, default=None)
    return {"from": start, "to": end, "least": least, "most": most, "counts": list(map(len, series))}


@dataclass(frozen=True, slots=True)
class Side:
    entries: Sequence[Entry]
    mean: float | None
    """Their mean reward."""

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> "Side":
        values = rewards(entries)
        return cls(entries, mean_of(values) if values else None)


@dataclass(frozen=True, slots=True)
class TaskPair:
    task: TaskKey
    a: Side
    b: Side

    @property
    def difference(self) -> float | None:
        """How much higher the mean reward is in the second run."""
        return None if self.a.mean is None or self.b.mean is None else self.b.mean - self.a.mean


PAIR_ORDERS: Mapping[str, Order[TaskPair]] = {
    "task": lambda pair: pair.task.order,
    "a": lambda pair: pair.a.mean,
    "b": lambda pair: pair.b.mean,
    "difference": lambda pair: pair.difference,
}


def pairs(a: Iterable[Entry], b: Iterable[Entry]) -> list[TaskPair]:
    first, second = _by_task(a), _by_task(b)
    return [
        TaskPair(task, Side.of(first.get(task, ())), Side.of(second.get(task, ())))
        for task in {**first, **second}
    ]


def _by_task(entries: Iterable[Entry]) -> dict[TaskKey, list[Entry]]:
    found: dict[TaskKey, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.task, []).append(entry)
    return found


def selected_pairs(request: Request, found: Sequence[TaskPair]) -> list[TaskPair]:
    shown, words = request.asked("shown"), request.asked("task").casefold().split()
    if shown not in SHOWN:
        raise BadRequest(f"shown: expected one of {', '.join(SHOWN[1:])}")
    kept = (pair for pair in found if shown in ("", verdict(pair)) and has_words(label(pair.task), words))
    sorting = Sorting.asked(request, PAIR_ORDERS, "-difference")
    return sorting.apply(kept, PAIR_ORDERS[sorting.by])


def verdict(pair: TaskPair) -> str:
    """Whether the second run is better at a task, as in `SHOWN`."""
    difference = pair.difference
    if difference is None:
        return "alone"
    return "same" if abs(difference) < 1e-9 else "better" if difference > 0 else "worse"
