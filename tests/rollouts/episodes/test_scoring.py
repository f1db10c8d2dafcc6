"""What episodes count as: the table of outcomes."""

from math import nan
from typing import Any

import pytest

from ors.rollouts import Failed, Outcome, Refused, Scored, Truncated, Unscored
from ors.rollouts.episodes.scoring import Scoring

CHOSEN = Scoring(unscored_reward=-1.0, truncated_reward=-2.0)


@pytest.mark.parametrize(
    ("outcome", "earned", "counts"),
    [
        (Scored(), 0.5, 0.5),
        (Unscored(), None, -1.0),
        (Refused(), None, -1.0),
        (Refused(), 0.5, 0.5),
        *((Truncated(limit), None, -2.0) for limit in ("turns", "tokens", "cost", "seconds")),
        (Truncated("turns"), 0.5, 0.5),
        *((Failed(who, "model", "Error"), 0.5, None) for who in ("agent", "model", "environment")),
        (Failed("infrastructure", "opening", "Unavailable"), None, None),
    ],
)
def test_each_outcome_counts_as_the_table_says(
    outcome: Outcome, earned: float | None, counts: float | None
) -> None:
    assert CHOSEN.score(outcome, earned) == counts


def test_episodes_without_a_reward_count_as_0_unless_others_were_chosen() -> None:
    assert Scoring() == Scoring.of({}) == Scoring(0.0, 0.0)
    assert Scoring.of({"unscored_reward": -1, "truncated_reward": -2.0, "model": "noop"}) == CHOSEN


@pytest.mark.parametrize("value", [None, "none", nan, [1], 10**400])
def test_a_choice_that_is_no_number_is_no_choice(value: Any) -> None:
    assert Scoring.of({"unscored_reward": value, "truncated_reward": value}) == Scoring()


def test_a_failure_counts_as_its_party_says_whatever_the_episode_earned() -> None:
    scoring = Scoring(failed_reward={"environment": 0.0})
    assert scoring.score(Failed("environment", "call", "ToolFailed"), 0.75) == 0.0
    assert scoring.score(Failed("infrastructure", "call", "SessionLost"), 0.75) is None


def test_a_failed_reward_of_nobody_is_refused() -> None:
    wrong: Any = {"server": 0.0}
    with pytest.raises(ValueError, match="failed_reward has 'server', not one of agent, model, environment"):
        Scoring(failed_reward=wrong)
    with pytest.raises(ValueError, match="failed_reward of environment must be a finite number"):
        Scoring(failed_reward={"environment": nan})
