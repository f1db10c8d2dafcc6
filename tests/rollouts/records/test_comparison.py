"""Two runs, compared task by task."""

import pytest

from ors.rollouts.records import compare
from ors.rollouts.records.comparison import MOST_FLIPPED, significance
from tests.rollouts.records.test_statistics import INFRASTRUCTURE, entry

SLEEP = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
"""Student's own example of paired differences."""


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1, 1, 1, 1], 2 / 16),
        ([1, 1, 1, -1], 10 / 16),
        ([1, 0, 0, 0], 1),
        ([0, 0], 1),
        ([0.3, 0.1, 0.2], 2 / 8),
        ([3, 1, -1], 6 / 8),
        ([1, -1], 1),
    ],
)
def test_with_few_tasks_all_signs_are_tried(differences: list[float], p: float) -> None:
    found, test = significance(differences)
    assert found == pytest.approx(p)
    assert test == "permutation"


def test_with_many_tasks_the_test_is_the_paired_t_test() -> None:
    p, test = significance(SLEEP * 2)
    assert p == pytest.approx(1.1059e-05, rel=1e-3)
    assert test == "t"
    assert significance([1.0] * (MOST_FLIPPED + 1)) == (0.0, "t")


def test_both_tests_agree_where_they_meet() -> None:
    differences = [0.5, -0.25, 0.75, 0.5, 0.25, -0.5, 1.0, 0.25, -0.25, 0.5, 0.0, 0.25, -0.75, 0.5, 0.25, 0.5]
    exact, _ = significance(differences)
    assert exact is not None
    by_t, test = significance([*differences, 1e-6, -1e-6])
    assert test == "t"
    assert by_t == pytest.approx(exact, rel=0.35)


def test_one_task_is_no_evidence() -> None:
    assert significance([1.0]) == (None, "permutation")


def test_each_task_is_compared_with_itself() -> None:
    before = [entry(0, 1.0), entry(0, 0.0), entry(1, 0.0), entry(2, 1.0), entry(3, 0.0), entry(8, 1.0)]
    after = [
        entry(0, 1.0),
        entry(1, 1.0),
        entry(1, 1.0),
        entry(2, 0.0),
        entry(3, 0.0),
        entry(8, None, INFRASTRUCTURE),
        entry(9, 1.0),
        entry(10, 1.0),
    ]
    found = compare(before, after)
    assert found is not None
    assert [(change.task.index, change.before, change.after) for change in found.changes] == [
        (2, 1.0, 0.0),
        (3, 0.0, 0.0),
        (0, 0.5, 1.0),
        (1, 0.0, 1.0),
    ]
    assert [change.task.index for change in found.better] == [1, 0]
    assert [change.task.index for change in found.worse] == [2]
    assert (found.before, found.after, found.difference.mean) == (0.375, 0.5, 0.125)
    assert (found.only_before, found.only_after) == (1, 2)
    assert found.changes[3].episodes == (1, 2)
    # Of the sums of ±1, ±0.5 and ±1, those as far from 0 as 0.5 are all eight.
    assert (found.p, found.test, found.is_significant) == (1.0, "permutation", False)


def test_equal_changes_are_in_the_order_of_their_tasks() -> None:
    before = [entry(n, 0.0) for n in (3, 1, 2)] + [entry(n, 1.0) for n in (6, 4, 5)]
    after = [entry(n, 1.0) for n in (2, 3, 1)] + [entry(n, 0.0) for n in (5, 6, 4)]
    found = compare(before, after)
    assert found is not None
    assert [change.task.index for change in found.better] == [1, 2, 3]
    assert [change.task.index for change in found.worse] == [4, 5, 6]


def test_a_clear_difference_is_significant() -> None:
    found = compare([entry(n, 0.0) for n in range(40)], [entry(n, float(n % 3 > 0)) for n in range(40)])
    assert found is not None
    assert found.is_significant
    assert found.difference.low is not None
    assert found.difference.low > 0


def test_runs_without_a_common_task_cannot_be_compared() -> None:
    assert compare([entry(0, 1.0)], [entry(1, 1.0), entry(0, None, INFRASTRUCTURE)]) is None


def test_a_task_that_was_given_up_is_compared_as_lost() -> None:
    before = [entry(n, 1.0) for n in range(6)]
    after = [entry(n, 1.0 if n < 3 else None) for n in range(6)]
    found = compare(before, after)
    assert found is not None
    assert (found.after, found.difference.mean, len(found.worse)) == (0.5, -0.5, 3)


def test_the_interval_of_a_difference_of_shares_stays_between_minus_1_and_1() -> None:
    found = compare([entry(0, 0.0), entry(1, 1.0)], [entry(0, 1.0), entry(1, 1.0)])
    assert found is not None
    assert (found.difference.low, found.difference.high) == (-1.0, 1.0)
    large = compare([entry(0, 0.0), entry(1, 5.0)], [entry(0, 1.0), entry(1, 5.0)])
    assert large is not None
    assert large.difference.high is not None
    assert large.difference.high > 1
