"""Statistics, against tables that were computed by hand."""

from collections.abc import Sequence
from math import inf
from typing import Any

import pytest

from ors.rollouts import Failed, Outcome, Scored, TaskKey, Truncated, Unscored, Usage
from ors.rollouts.episodes.scoring import Scoring
from ors.rollouts.records import Entry, summarize, task_rows
from ors.rollouts.records.statistics import (
    Failures,
    PassRate,
    clustered_mean,
    pass_at_k,
    pass_hat_k,
    pass_rates,
    percentile,
    quantile,
    two_sided,
)

INFRASTRUCTURE = Failed("infrastructure", "opening", "Unavailable")


def entry(index: int, reward: float | None = None, outcome: Outcome | None = None, **more: Any) -> Entry:
    """An episode of the index; scored if it has a reward."""
    given: dict[str, Any] = {
        "id": f"{index}",
        "task": TaskKey("adder", more.pop("split", "test"), index, None),
        "sample": 0,
        "agent": "",
        "outcome": outcome or (Unscored() if reward is None else Scored()),
        "reward": reward,
        "usage": Usage(),
        "started": 0.0,
        "seconds": 0.0,
        "attempts": 1,
        "model_seconds": (),
        "call_seconds": (),
        "part": "",
        "offset": 0,
        "size": 0,
    }
    return Entry(**{**given, **more})


@pytest.mark.parametrize(
    ("degrees", "value"), [(1, 12.7062), (2, 4.3027), (5, 2.5706), (10, 2.2281), (30, 2.0423), (1000, 1.9623)]
)
def test_the_quantiles_of_t_are_those_of_the_printed_tables(degrees: int, value: float) -> None:
    assert quantile(0.95, degrees) == pytest.approx(value, abs=5e-5)
    assert two_sided(value, degrees) == pytest.approx(0.05, abs=5e-6)


@pytest.mark.parametrize(
    ("t", "degrees", "p"),
    [
        (4.0621, 9, 0.0028329),
        (0.5, 3, 0.6514326),
        (30, 4, 7.35e-06),
        (0.01, 500, 0.9920252),
        (0, 7, 1),
        (inf, 7, 0),
    ],
)
def test_the_probabilities_of_t_are_right_on_both_sides(t: float, degrees: int, p: float) -> None:
    assert two_sided(t, degrees) == pytest.approx(p, rel=1e-3)
    assert two_sided(-t, degrees) == two_sided(t, degrees)


def test_the_error_of_a_mean_is_clustered_by_task() -> None:
    # Residuals from the mean 0.6, summed by task: -0.2, 0.8, -0.6. Squares: 1.04.
    found = clustered_mean([[1, 0], [1, 1], [0], []])
    assert found is not None
    assert found.mean == pytest.approx(0.6)
    assert found.error == pytest.approx((1.04 * 3 / 2) ** 0.5 / 5)
    assert found.low == pytest.approx(0.6 - 4.302653 * 0.2498, abs=1e-5)
    assert found.high == pytest.approx(0.6 + 4.302653 * 0.2498, abs=1e-5)


def test_with_one_episode_for_each_task_the_error_is_the_usual_one() -> None:
    found = clustered_mean([[1], [2], [3], [4]])
    assert found is not None
    assert found.error == pytest.approx((5 / 3) ** 0.5 / 2)


def test_episodes_that_only_repeat_their_task_tell_nothing_more() -> None:
    once, often = clustered_mean([[0], [1], [1]]), clustered_mean([[0] * 50, [1] * 50, [1] * 50])
    assert once is not None
    assert often is not None
    assert often.error == pytest.approx(once.error)


def test_one_task_has_no_error_and_no_task_has_no_mean() -> None:
    found = clustered_mean([[1, 0]])
    assert found is not None
    assert (found.mean, found.error, found.low) == (0.5, None, None)
    assert clustered_mean([]) is clustered_mean([[]]) is None


@pytest.mark.parametrize(
    ("n", "solved", "k", "some", "every"),
    [
        (4, 1, 1, 1 / 4, 1 / 4),
        (4, 1, 2, 1 / 2, 0),
        (4, 3, 2, 1, 1 / 2),
        (4, 2, 2, 5 / 6, 1 / 6),
        (5, 2, 3, 9 / 10, 0),
        (3, 0, 3, 0, 0),
        (3, 3, 3, 1, 1),
    ],
)
def test_pass_at_k_and_pass_hat_k_are_unbiased(
    n: int, solved: int, k: int, some: float, every: float
) -> None:
    assert pass_at_k(n, solved, k) == pytest.approx(some)
    assert pass_hat_k(n, solved, k) == pytest.approx(every)


def test_pass_rates_are_those_of_the_tasks_that_were_tried_often_enough() -> None:
    found = pass_rates([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0], [0.0], [1.0, 1.0, 1.0]])
    assert found[0] == PassRate(1, (1 / 4 + 3 / 4 + 0 + 1) / 4, (1 / 4 + 3 / 4 + 0 + 1) / 4, 4)
    assert (found[1].any, found[1].all) == pytest.approx(((1 / 2 + 1 + 1) / 3, (0 + 1 / 2 + 1) / 3))
    assert found[1].tasks == 3
    assert [each.k for each in found] == [1, 2, 4]
    assert [each.k for each in pass_rates([[1] * 6])] == [1, 2, 4, 6]


@pytest.mark.parametrize("rewards", [[[1, 0.5]], [[2]], [[-1, 1]], []])
def test_without_rewards_of_0_and_1_there_are_no_pass_rates(rewards: Sequence[Sequence[float]]) -> None:
    assert pass_rates(rewards) == []


def test_percentiles_are_interpolated() -> None:
    assert [percentile([1, 2, 3, 4], share) for share in (0, 0.5, 0.95, 1)] == [
        1,
        2.5,
        pytest.approx(3.85),
        4,
    ]
    assert percentile([7], 0.95) == 7


def test_failed_episodes_are_left_out_and_counted_apart() -> None:
    entries = [
        entry(0, 1.0),
        entry(0, 0.0),
        entry(1, 1.0, Truncated("turns")),
        entry(2, None, Truncated("tokens")),
        entry(3, None),
        entry(4, None, INFRASTRUCTURE),
        entry(4, None, INFRASTRUCTURE),
        entry(5, None, Failed("environment", "call", "ToolFailed")),
    ]
    found = summarize(entries)
    assert (found.episodes, found.tasks, found.rewarded, found.unrewarded) == (8, 6, 3, 2)
    assert found.reward is not None
    assert found.reward.mean == pytest.approx(2 / 5)
    assert found.outcomes == {"failed": 3, "scored": 2, "truncated": 2, "unscored": 1}
    assert found.truncated == {"turns": 1, "tokens": 1}
    assert found.failures == [
        Failures("infrastructure", "opening", "Unavailable", 2),
        Failures("environment", "call", "ToolFailed", 1),
    ]
    assert found.passes[0] == PassRate(1, 1.5 / 4, 1.5 / 4, 4)


def test_giving_up_never_makes_the_mean_better_than_losing() -> None:
    solved, lost = [entry(n, 1.0) for n in range(3)], [entry(n, 0.0) for n in range(3, 6)]
    for outcome in (Unscored(), Truncated("turns"), Truncated("tokens"), Truncated("seconds")):
        given_up = [entry(n, None, outcome) for n in range(3, 6)]
        assert summarize([*solved, *given_up]).reward == summarize([*solved, *lost]).reward
        assert [row.reward for row in task_rows(given_up)] == [row.reward for row in task_rows(lost)]


def test_a_run_says_what_its_episodes_without_a_reward_count_as() -> None:
    scoring = Scoring(unscored_reward=-1.0, truncated_reward=-2.0)
    ended = (None, Truncated("turns"), INFRASTRUCTURE)
    found = summarize([entry(n, None, outcome, scoring=scoring) for n, outcome in enumerate(ended)])
    assert found.reward is not None
    assert found.reward.mean == -1.5
    said = ", 2 without a reward (counted as -1 if unscored, -2 if truncated), 1 failed (left out)"
    assert found.caveats == said


@pytest.mark.parametrize(
    "rewards",
    [[1.0] * 3, [0.0] * 2, [1.0, 0.0], [1.0, 1.0, 0.0], [0.9, 1.0, 1.0], [0.02, 0.0, 0.0, 0.4], [1e-9, 0.0]],
)
def test_the_interval_of_rewards_between_0_and_1_stays_there(rewards: list[float]) -> None:
    found = summarize([entry(index, reward) for index, reward in enumerate(rewards)]).reward
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low <= found.mean <= found.high <= 1
    assert found.low < found.high  # also where all are the same: three of three is no certainty


def test_the_interval_of_shares_is_wilsons() -> None:
    # Of 30 of 100: p = 0.3, n = p (1 - p) / error² = 99, t = 1.9842.
    found = summarize([entry(n, float(n < 30)) for n in range(100)]).reward
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.2177, 0.3976), abs=1e-4)


def test_the_interval_of_other_rewards_is_students() -> None:
    found = summarize([entry(0, 0.0), entry(1, 1.0), entry(2, 5.0)]).reward
    assert found == clustered_mean([[0.0], [1.0], [5.0]])


def test_a_run_whose_episodes_all_failed_has_no_mean_at_all() -> None:
    found = summarize([entry(0, None, INFRASTRUCTURE)])
    assert (found.reward, found.passes, found.rewarded) == (None, [], 0)
    assert summarize([]).episodes == 0


def test_rows_are_by_split_and_by_task() -> None:
    entries = [
        entry(1, 0.0, split="train"),
        entry(0, 1.0, split="train"),
        entry(0, 0.0, split="train"),
        entry(1, None, INFRASTRUCTURE),
        entry(0, 1.0),
    ]
    by_split = {row.name: row for row in summarize(entries).splits}
    assert by_split.keys() == {"train", "test"}
    train, test = by_split["train"], by_split["test"]
    assert (train.tasks, train.episodes, train.rewarded, train.failed) == (2, 3, 3, 0)
    assert (test.tasks, test.episodes, test.rewarded, test.failed) == (2, 2, 1, 1)
    assert [(row.name, row.reward and row.reward.mean) for row in task_rows(entries)] == [
        ("test/0", 1.0),
        ("test/1", None),
        ("train/0", 0.5),
        ("train/1", 0.0),
    ]


def test_rows_name_the_environment_if_there_are_several() -> None:
    entries = [entry(0, 1.0), entry(0, 0.0, task=TaskKey("maze", None, None, "ab12"))]
    assert [row.name for row in task_rows(entries)] == ["adder test/0", "maze spec ab12"]
    assert [row.name for row in summarize(entries).splits] == ["adder test", "maze -"]


def test_latencies_tokens_and_costs_are_summed_up() -> None:
    entries = [
        entry(
            0, 1.0, seconds=1.0, model_seconds=(1.0, 3.0), call_seconds=(0.0,), usage=Usage(10, 2, 5, 1, 0.5)
        ),
        entry(1, 1.0, seconds=3.0, model_seconds=(2.0,), call_seconds=(0.0, 0.0), usage=Usage(1, 1)),
    ]
    found = summarize(entries)
    assert found.latencies.keys() == {"episode", "model"}
    episodes, requests = found.latencies["episode"], found.latencies["model"]
    assert (episodes.p50, episodes.p95) == pytest.approx((2.0, 2.9))
    assert (requests.p50, requests.p95) == pytest.approx((2.0, 2.9))
    assert (episodes.count, requests.count) == (2, 3)
    assert found.usage == Usage(11, 3, 5, 1, None)  # the cost of the second is unknown, and so is the sum
    assert (found.turns, found.calls) == (1.5, 1.5)


@pytest.mark.parametrize(
    ("rewards", "mean", "error"),
    [
        ([1.7e308, 1.7e308], 1.7e308, 0.0),
        ([1.7e308, -1.7e308], 0.0, None),
        ([1.7e308, 1.7e308, -1e308], 8e307, None),
    ],
)
def test_rewards_whose_sum_is_beyond_all_floats_have_a_mean(
    rewards: list[float], mean: float, error: float | None
) -> None:
    found = summarize([entry(index, reward) for index, reward in enumerate(rewards)]).reward
    assert found is not None
    assert found.mean == pytest.approx(mean)
    assert found.error == error
