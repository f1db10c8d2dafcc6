"""What the adapters share: defaults, retries, counters, and the end of a training that only fails."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ors import Server
from ors.adapters.training import MostFailed, Training, Watch, check_step
from ors.client import ORS, Options, Session
from ors.rollouts import EpisodeRecord, Failed, Outcome, Refused, Scored, TaskRef, Truncated, Unscored
from tests.support.live_server import serving
from tests.support.training_environment import Hunt

_HASTE = Options(retries=0, connect_seconds=1)
BOOM = Failed("environment", "call", "ToolFailed", "the tool is broken")
LOST = Failed("infrastructure", "opening", "ConnectionFailed", "nobody listens")


def record(outcome: Outcome, reward: float | None = None, index: int = 0) -> EpisodeRecord:
    return EpisodeRecord("0" * 32, TaskRef("hunt", "train", index), 0, outcome, reward, (), ())


WON = record(Scored(), 1.0)


@pytest.fixture
def client() -> Iterator[ORS]:
    with serving(Server([Hunt])) as url, ORS(url) as made:
        yield made


def test_an_adapter_counts_episodes_that_earned_nothing_as_ors_eval_does() -> None:
    assert Training.of({"reward": "last"}).arguments == {
        "reward": "last",
        "unscored_reward": 0.0,
        "truncated_reward": 0.0,
    }
    chosen = Training.of({"reward": "last", "unscored_reward": None, "truncated_reward": -1.0, "retries": 0})
    assert chosen.arguments == {"reward": "last", "unscored_reward": None, "truncated_reward": -1.0}
    assert chosen.retries == 0


def test_a_wrong_argument_is_refused_before_the_first_episode() -> None:
    wrong: Any = "mean"
    with pytest.raises(ValueError, match="Unknown reward reduction 'mean'"):
        Training.of({"reward": wrong})


def test_an_episode_that_cannot_be_opened_for_infrastructure_is_opened_again(client: ORS) -> None:
    env, opened = client.environment("hunt"), list[Session]()

    def session() -> Session:
        where = ORS("http://127.0.0.1:9", options=_HASTE).environment("hunt") if not opened else env
        opened.append(where.session(split="train", index=3))
        return opened[-1]

    episode, first = Training.of({"reward": "last"}).begin(session)
    assert (len(opened), len(first), episode.record) == (2, 1, None)
    episode.stop("the test has ended")


def test_an_episode_whose_setup_raises_is_not_opened_again(client: ORS) -> None:
    opened = list[Session]()

    def session() -> Session:
        opened.append(client.environment("hunt").session(split="broken", index=3))
        return opened[-1]

    episode, _ = Training.of({"reward": "last"}).begin(session)
    assert len(opened) == 1
    assert episode.record is not None
    assert isinstance(episode.record.outcome, Failed)


def test_the_metrics_of_a_step_have_the_share_of_each_kind(caplog: pytest.LogCaptureFixture) -> None:
    failed: list[Outcome] = [BOOM, BOOM, LOST]
    ended: list[Outcome] = [Unscored(), Refused(), Truncated("turns"), Truncated("tokens")]
    caplog.set_level(logging.WARNING, "ors.adapters")
    found = Watch().count([WON, *map(record, failed), *(record(each, 0.0) for each in ended)])
    assert found == {
        "ors/left_out": 3 / 8,
        "ors/unscored": 1 / 8,
        "ors/refused": 1 / 8,
        "ors/truncated": 2 / 8,
        "ors/failed_agent": 0,
        "ors/failed_model": 0,
        "ors/failed_environment": 2 / 8,
        "ors/failed_infrastructure": 1 / 8,
    }
    assert [each.getMessage() for each in caplog.records] == [
        "2 of 8 episodes failed: environment, at the stage 'call', ToolFailed: the tool is broken (left out)",
        "1 of 8 episodes failed: infrastructure, at the stage 'opening', ConnectionFailed: nobody listens"
        " (left out)",
    ]


def test_a_policy_that_learns_to_break_the_environment_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()
    for crashes in (0, 1, 2, 3):
        watch.count([record(BOOM)] * crashes + [WON] * (8 - crashes))
    assert "has learned to break it" not in caplog.text
    watch.count([record(BOOM)] * 5 + [WON] * 3)
    (warning,) = [each.getMessage() for each in caplog.records if "break it" in each.getMessage()]
    assert warning.startswith("hunt/train/0: the environment failed in 0% of the first episodes, and in 50%")


def test_a_policy_that_learns_to_break_every_task_is_noticed_though_none_comes_twice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = Watch()
    watch.count([record(Scored(), 1.0, index) for index in range(64)])
    watch.count([record(BOOM, index=index) for index in range(64, 95)])
    assert "break it" not in caplog.text
    watch.count([record(BOOM, index=index) for index in range(95, 128)])
    (warning,) = [each.getMessage() for each in caplog.records if "break it" in each.getMessage()]
    assert warning.startswith("hunt: the environment failed in 0% of the first episodes, and in 50%")


def test_an_environment_that_always_failed_has_not_been_broken_by_the_policy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = Watch()
    for _ in range(40):
        watch.count([record(BOOM, index=each) for each in range(4)])
    assert "break it" not in caplog.text


def test_a_training_is_warned_once_of_what_a_check_of_its_run_would_find(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = Watch()
    for _ in range(8):
        watch.count([record(Scored(), 1.0, index) for index in range(8) for _ in range(4)])
    (warning,) = [each.getMessage() for each in caplog.records]
    assert warning.startswith("All 32 episodes earned 1, so no group has any variance. They give no gradient")


@pytest.mark.parametrize("outcomes", [[LOST] * 5 + [Scored()] * 3, [BOOM] * 8, [LOST]])
def test_a_step_in_which_most_episodes_failed_ends_the_training(outcomes: list[Outcome]) -> None:
    with pytest.raises(MostFailed, match=r"of the \d episodes of this step failed; \d of them failed: "):
        check_step([record(each) for each in outcomes])


@pytest.mark.parametrize(
    "outcomes", [[LOST] * 4 + [Scored()] * 4, [BOOM] * 6 + [Scored()] * 2, [Unscored()] * 8, []]
)
def test_a_step_that_can_train_goes_on(outcomes: list[Outcome]) -> None:
    check_step([record(each) for each in outcomes])
    check_step([replace(record(BOOM), reward=0.0)] * 8)  # scored as a loss
