"""Two runs, compared task by task."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum, hypot, sqrt
from typing import Literal

from ors.rollouts.episodes.episode import TaskKey
from ors.rollouts.records.reader import Entry
from ors.rollouts.records.statistics import (
    CONFIDENCE,
    Estimate,
    clustered_mean,
    declared_range,
    mean_of,
    scores_by_component,
    scores_by_task,
    two_sided,
)

MOST_FLIPPED = 16
"""Up to this many tasks that differ, all signs are tried."""
_ROUNDING = 1e-9
MOST = sys.float_info.max
Scores = Mapping[TaskKey, Sequence[float]]


@dataclass(frozen=True, slots=True)
class TaskChange:
    """One task in both runs: its mean rewards, as `Scoring` counts them."""

    task: TaskKey
    before: float
    after: float
    episodes: tuple[int, int]

    @property
    def difference(self) -> float:
        """How much more reward the second run got."""
        return max(-MOST, min(MOST, self.after - self.before))


@dataclass(frozen=True, slots=True)
class Comparison:
    """The second run against the first, over the tasks with an episode in both that did not fail."""

    changes: Sequence[TaskChange]
    """All common tasks, from the worst change to the best."""
    before: float
    after: float
    difference: Estimate
    p: float | None
    """How likely a difference this large is by chance, if the runs are equally good. None with one task."""
    test: Literal["permutation", "t"]
    only_before: int
    """Tasks that only the first run has such an episode of."""
    only_after: int
    components: Mapping[str, "Comparison"] = field(default_factory=dict)
    """The same of each named reward that both runs have."""

    @property
    def better(self) -> list[TaskChange]:
        """Tasks that got better, the best first."""
        best_first = sorted(self.changes, key=lambda change: -change.difference)
        return [change for change in best_first if change.difference > _ROUNDING]

    @property
    def worse(self) -> list[TaskChange]:
        """Tasks that got worse, the worst first."""
        return [change for change in self.changes if change.difference < -_ROUNDING]

    @property
    def is_significant(self) -> bool:
        """Whether chance would explain the difference in fewer than one of twenty cases."""
        return self.p is not None and self.p < 1 - CONFIDENCE


def compare(before: Iterable[Entry], after: Iterable[Entry]) -> Comparison | None:
    """Compares the mean rewards of two runs, paired by task; None if they have no task in common.

    Tasks differ from each other much more than runs do, so each task is compared with itself, and all tasks
    count equally, however many episodes they have. With up to 16 tasks that differ, the test is an exact
    permutation test: it assumes nothing of the distribution, which matters when tasks are few. With more, it
    is the paired t-test, which then gives nearly the same.
    """
    before, after = list(before), list(after)
    found = _compared(
        scores_by_task(before), scores_by_task(after), declared_range([*before, *after]) or (0.0, 1.0)
    )
    if found is None:
        return None
    first, second = scores_by_component(before), scores_by_component(after)
    named = {name: _compared(first[name], second[name]) for name in first if name in second}
    return replace(found, components={name: each for name, each in named.items() if each is not None})


def _compared(first: Scores, second: Scores, bounds: tuple[float, float] = (0.0, 1.0)) -> Comparison | None:
    common = sorted(first.keys() & second.keys(), key=lambda task: task.order)
    if not common:
        return None
    changes = [
        TaskChange(task, mean_of(first[task]), mean_of(second[task]), (len(first[task]), len(second[task])))
        for task in common
    ]
    changes.sort(key=lambda change: change.difference)
    differences = [change.difference for change in changes]
    p, test = significance(differences)
    difference = clustered_mean([each] for each in differences)
    assert difference is not None
    scores = (score for run in (first, second) for task in run.values() for score in task)
    within = all(bounds[0] <= score <= bounds[1] for score in scores)
    if difference.low is not None and difference.high is not None and within:
        most = bounds[1] - bounds[0]
        difference = replace(difference, low=max(-most, difference.low), high=min(most, difference.high))
    return Comparison(
        changes,
        mean_of([change.before for change in changes]),
        mean_of([change.after for change in changes]),
        difference,
        p,
        test,
        len(first) - len(common),
        len(second) - len(common),
    )


def significance(differences: Sequence[float]) -> tuple[float | None, Literal["permutation", "t"]]:
    """The p-value of paired differences, and the test that it comes from."""
    moved = [each for each in differences if abs(each) > _ROUNDING]
    test: Literal["permutation", "t"] = "permutation" if len(moved) <= MOST_FLIPPED else "t"
    if len(differences) < 2:
        return None, test
    try:
        return (_permutation(moved) if test == "permutation" else _paired_t(differences)), test
    except OverflowError:  # the sums are beyond all floats
        return None, test


def _permutation(moved: Sequence[float]) -> float:
    """The share of all choices of signs that gives a sum as far from 0 as the true one."""
    sums = [0.0]
    for each in moved:
        sums = [total + signed for total in sums for signed in (each, -each)]
    observed = abs(fsum(moved)) - _ROUNDING
    return sum(abs(total) >= observed for total in sums) / len(sums)


def _paired_t(differences: Sequence[float]) -> float:
    count = len(differences)
    mean = fsum(differences) / count
    deviation = hypot(*(each - mean for each in differences)) / sqrt(count - 1)
    return two_sided(mean / deviation * sqrt(count), count - 1) if deviation else 0.0
