"""Limits of an episode."""

import pytest

from ors.rollouts import EpisodeLimits, Truncated, Usage

SPENT = Usage(input_tokens=90, output_tokens=10, cached_tokens=80, reasoning_tokens=5, cost=0.5)


@pytest.mark.parametrize(
    ("limits", "reached"),
    [
        (EpisodeLimits(), None),
        (EpisodeLimits(turns=4, tokens=101, cost=0.6), None),
        (EpisodeLimits(turns=3), "turns"),
        (EpisodeLimits(tokens=100), "tokens"),  # cached and reasoning tokens are among them
        (EpisodeLimits(cost=0.5), "cost"),
        (EpisodeLimits(seconds=0.001), None),  # time is the episode's matter
    ],
)
def test_a_limit_is_reached_when_as_much_was_used(limits: EpisodeLimits, reached: str | None) -> None:
    found = limits.reached(3, SPENT)
    assert (found.limit if isinstance(found, Truncated) else None) == reached


@pytest.mark.parametrize(
    ("limits", "usage", "said"),
    [
        (EpisodeLimits(cost=0.01), Usage(input_tokens=1000), "cost: the model provider reports no usage"),
        (EpisodeLimits(cost=0.01), SPENT + Usage(unknown=1), "cost: the model provider reports no usage"),
        (EpisodeLimits(tokens=500), SPENT + Usage(unknown=1), "tokens: the model provider reports no usage"),
        (EpisodeLimits(cost=0.01, tokens=500), SPENT, ""),
        (EpisodeLimits(turns=3, seconds=1), Usage(unknown=1), ""),
    ],
)
def test_a_limit_of_what_nobody_knows_cannot_be_kept(limits: EpisodeLimits, usage: Usage, said: str) -> None:
    assert (limits.blind(usage) or "").startswith(said)
    assert bool(limits.blind(usage)) == bool(said)


@pytest.mark.parametrize("name", ["turns", "tokens", "cost", "seconds"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_that_nothing_can_keep_is_an_error(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"'{name}' must be over 0"):
        EpisodeLimits(**{name: value})  # type: ignore[arg-type]
