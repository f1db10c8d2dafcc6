"""The table of outcomes in `play` and in `ors eval`; the checks of the trainers compare their adapters."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from ors import Server
from ors.adapters.training import Training
from ors.client import ORS
from ors.rollouts import EpisodeRecord, play_sync
from ors.rollouts.episodes.scoring import Scoring
from tests.support.live_server import serving
from tests.support.outcome_cases import Case, check
from tests.support.scripted_agents import Script
from tests.support.training_environment import Essay, Hunt


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Server([Hunt, Essay])) as url:
        yield url


def played(url: str, environment: str, cases: Sequence[Case], arguments: Any) -> list[EpisodeRecord]:
    with ORS(url) as client:
        env = client.environment(environment)
        scripts = [Script(*[reply.message() for reply in case.replies]) for case in cases]
        return [play_sync(env.session(split="train", index=3), each, **arguments) for each in scripts]


def test_play_with_the_defaults_of_training_counts_as_the_table_says(url: str) -> None:
    def play(
        url: str, environment: str, cases: Sequence[Case], options: Mapping[str, Any]
    ) -> Sequence[float | None]:
        arguments: Any = options
        return [each.reward for each in played(url, environment, cases, Training.of(arguments).arguments)]

    check(url, play)


def test_ors_eval_counts_what_play_records_as_the_table_says(url: str) -> None:
    def play(
        url: str, environment: str, cases: Sequence[Case], options: Mapping[str, Any]
    ) -> Sequence[float | None]:
        chosen = {name: value for name, value in options.items() if name != "reward"}
        records = played(url, environment, cases, {"reward": "last"})
        return [Scoring(**chosen).score(each.outcome, each.reward) for each in records]

    check(url, play)
