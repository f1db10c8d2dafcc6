"""Reductions against values that were computed by hand."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ors.rollouts import Reduction
from ors.rollouts.episodes.rules import Rules, reducer

TABLE: list[tuple[list[float], float, float, float]] = [
    # rewards, last, sum, max
    ([1.0], 1.0, 1.0, 1.0),
    ([0.0], 0.0, 0.0, 0.0),
    ([-1.0], -1.0, -1.0, -1.0),
    ([0.25, 0.5], 0.5, 0.75, 0.5),
    ([1.0, 0.0], 0.0, 1.0, 1.0),
    ([-0.5, -2.0, -1.0], -1.0, -3.5, -0.5),
    ([0.5, -0.5, 0.125, 0.0], 0.0, 0.125, 0.5),
    ([3.0, 3.0, 3.0], 3.0, 9.0, 3.0),
]


@pytest.mark.parametrize(("rewards", "last", "total", "highest"), TABLE)
def test_each_reduction_gives_what_was_computed_by_hand(
    rewards: list[float], last: float, total: float, highest: float
) -> None:
    assert [reducer(name)(rewards) for name in ("last", "sum", "max")] == [last, total, highest]


@given(st.lists(st.integers(-1000, 1000).map(lambda n: n / 8), min_size=1))
def test_reductions_hold_for_any_rewards(rewards: list[float]) -> None:
    last, total, highest = (reducer(name)(rewards) for name in ("last", "sum", "max"))
    assert rewards[-1] == last
    assert total == reducer("sum")(rewards[::-1])  # eighths are exact, in any order
    assert highest in rewards
    assert all(reward <= highest for reward in rewards)


def test_a_function_is_its_own_reduction() -> None:
    def mean(rewards: Sequence[float]) -> float:
        return sum(rewards) / len(rewards)

    assert reducer(mean)([1.0, 2.0, 6.0]) == 3.0


@pytest.mark.parametrize("unknown", ["mean", "", None])
def test_an_unknown_reduction_names_those_that_there_are(unknown: Reduction) -> None:
    with pytest.raises(ValueError, match="use one of last, sum, max, or a function"):
        reducer(unknown)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_the_reward_of_truncated_and_unscored_episodes_is_a_finite_number(value: float) -> None:
    with pytest.raises(ValueError, match="truncated_reward must be a finite number or None"):
        Rules(reward="sum", truncated_reward=value)
    with pytest.raises(ValueError, match="unscored_reward must be a finite number or None"):
        Rules(reward="sum", unscored_reward=value)
