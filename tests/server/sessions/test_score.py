"""The score of a session: what counts, and how its episode ends."""

import pytest

from ors.server.episodes.result import Result, failed
from ors.server.sessions.score import Score

OK, HALF, ZERO, FAILED = Result(b""), Result(b"", reward=0.5), Result(b"", reward=0.0), failed("no", "tool")


@pytest.mark.parametrize(
    ("results", "has_failed", "outcome", "reward"),
    [
        ([], False, "unscored", None),
        ([OK], False, "unscored", None),
        ([HALF, OK, HALF], False, "scored", 1.0),
        ([ZERO], False, "scored", 0.0),
        ([HALF], True, "failed", None),
    ],
)
def test_an_episode_is_scored_if_it_has_a_reward_and_did_not_fail(
    results: list[Result], has_failed: bool, outcome: str, reward: float | None
) -> None:
    score = Score()
    for result in results:
        score.add(result)
    assert (score.counted, score.outcome, score.result) == (False, "", None)
    score.end(has_failed)
    assert (score.counted, score.outcome, score.result) == (True, outcome, reward)
    assert score.calls == len(results)


def test_the_last_call_says_whether_it_failed() -> None:
    score, said = Score(), []
    for result in (OK, FAILED, Result(b"", "refused")):
        said.append(score.failed)
        score.add(result)
    assert [*said, score.failed] == [False, False, True, False]
