"""What an environment declares of its rewards, and how the server checks and counts them."""

import logging
from typing import Any

import pytest

from ors import Environment, Server, ToolOutput, tool
from ors.client import ORS
from ors.errors import InvalidEnvironment
from ors.types import RewardSpec
from tests.support.environments import Lab
from tests.support.essay_environment import Essay
from tests.support.live_server import serving
from tests.support.raw_http import Raw

SENTENCES = {"correct": "Whether the answer is right.", "tidy": "How tidy the text is."}


class Graded(Essay):
    """Declares its rewards."""

    reward_range = (0, 2)
    reward_components = SENTENCES

    @tool
    async def bonus(self, name: str, value: float) -> ToolOutput:
        """Gives another reward, which ends the episode."""
        return ToolOutput("given", rewards={name: value}, finished=True)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"reward_range": (1, 0)}, r"reward_range: \(1, 0\) is not \(least, highest\), such as \(0, 1\)"),
        ({"reward_range": (1, 1)}, r"reward_range: \(1, 1\) is not"),
        ({"reward_range": 1}, "reward_range: 1 is not"),
        ({"reward_range": "01"}, "reward_range: '01' is not"),
        ({"reward_range": (0, 1, 2)}, r"reward_range: \(0, 1, 2\) is not"),
        ({"reward_range": (0, float("inf"))}, r"reward_range: \(0, inf\) is not"),
        ({"reward_range": (0, float("nan"))}, r"reward_range: \(0, nan\) is not"),
        ({"reward_range": ("a", "b")}, r"reward_range: \('a', 'b'\) is not"),
        (
            {"reward_components": ["correct"]},
            r"reward_components: give names and sentences, .*not \['correct'\]",
        ),
        ({"reward_components": {"": "x"}}, "reward_components: '' is not a name"),
        ({"reward_components": {"correct": ""}}, "reward_components: 'correct' needs a sentence, not ''"),
        ({"reward_components": {"correct": 1.0}}, "reward_components: 'correct' needs a sentence, not 1.0"),
        ({"reward_components": {f"n{n}": "x" for n in range(65)}}, "reward_components: 65 are too many"),
    ],
)
def test_a_wrong_declaration_is_refused_when_the_class_is_defined(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidEnvironment, match=rf"^Wrong\.{told}"):
        type("Wrong", (Essay,), given)


def test_a_method_of_that_name_is_the_authors_own() -> None:
    class Own(Essay):
        def reward_components(self) -> dict[str, float]:
            return {}

        @property
        def reward_range(self) -> int:
            return 1

    with serving(Server([Own])) as url, ORS(url) as client:
        assert client.environment("own").reward_spec() == RewardSpec()


def test_a_declaration_is_served_and_inherited() -> None:
    class Child(Graded):
        reward_range = (-1, 1)

    with serving(Server([Graded, Child, Lab], inspector=True)) as url, ORS(url) as client:
        assert client.environment("graded").reward_spec() == RewardSpec((0.0, 2.0), SENTENCES)
        assert client.environment("child").reward_spec() == RewardSpec((-1.0, 1.0), SENTENCES)
        assert client.environment("lab").reward_spec() == RewardSpec()
        raw = Raw(url)
        listed = raw.get("/graded/tools").json()
        assert (listed["reward_range"], listed["reward_components"]) == ([0.0, 2.0], SENTENCES)
        assert {"reward_range", "reward_components"}.isdisjoint(raw.get("/lab/tools").json())
        graded, _, lab = raw.get("/-/api/environments").json()
        assert (graded["reward_range"], graded["reward_components"]) == ([0.0, 2.0], SENTENCES)
        assert (lab["reward_range"], lab["reward_components"]) == (None, {})


@pytest.mark.parametrize(
    ("calls", "warned"),
    [
        ([("bonus", {"name": "correct", "value": 2.5})], "the reward 2.5 is outside reward_range (0, 2)"),
        ([("bonus", {"name": "correct", "value": -1})], "the reward -1 is outside reward_range (0, 2)"),
        ([("bonus", {"name": "speed", "value": 1})], "the reward 'speed' is not in reward_components"),
        ([("bonus", {"name": "correct", "value": 2})], ""),
        ([("draft", {"tidy": 5}), ("fail", {})], ""),  # a failed episode has no reward
        (
            [("draft", {"tidy": 1.5}), ("bonus", {"name": "correct", "value": 2})],
            "",
        ),  # tells the score so far
        ([("draft", {"tidy": -0.5}), ("bonus", {"name": "correct", "value": 2.5})], ""),  # pays each step
    ],
)
def test_the_server_warns_once_of_rewards_that_contradict_the_declaration(
    calls: list[tuple[str, dict[str, Any]]], warned: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "ors.server"), serving(Server([Graded])) as url:
        for _ in range(2):
            _play(url, calls)
    told = [
        record.getMessage()
        for record in caplog.records
        if "environment graded: the reward" in record.getMessage()
    ]
    assert told == ([f"environment graded: {warned} (logged once)"] if warned else [])


def _play(url: str, calls: list[tuple[str, dict[str, Any]]], env: str = "graded") -> None:
    raw = Raw(url)
    sid = raw.post("/create_session").json()["sid"]
    raw.post("/create", {"env_name": env, "split": "train", "index": 0}, sid=sid)
    for name, given in calls:
        raw.call(sid, name, given, env)
    raw.post("/delete", sid=sid)


class Many(Environment):
    """Gives a reward of any name."""

    tasks = {"train": [{}]}

    def get_prompt(self) -> str:
        return "Go."

    @tool
    async def give(self, first: int, value: float) -> ToolOutput:
        """Gives 60 rewards."""
        return ToolOutput("given", rewards={f"n{n}": value for n in range(first, first + 60)}, finished=True)


def test_metrics_sum_each_name_by_sign_and_a_bounded_number_of_them() -> None:
    with serving(Server([Essay, Many])) as url:
        _play(url, [("draft", {"tidy": -0.25}), ("submit", {"correct": 1.0, "tidy": -0.5})], "essay")
        _play(url, [("submit", {"correct": 1.0, "tidy": 0.5})], "essay")
        _play(url, [("draft", {"tidy": 9.0}), ("fail", {})], "essay")  # it failed, and does not count
        for first in range(0, 600, 60):
            _play(url, [("give", {"first": first, "value": 1.0})], "many")
        lines = Raw(url).get("/-/metrics").body.decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if line.startswith("ors_episode_reward_component"))

    def value(environment: str, component: str, sign: str) -> float:
        labels = f'component="{component}",environment="{environment}",sign="{sign}"'
        return float(values[f"ors_episode_reward_component_total{{{labels}}}"])

    assert value("essay", "correct", "plus") == 2.0
    assert value("essay", "tidy", "plus") == 0.5
    assert value("essay", "tidy", "minus") == 0.75
    assert len(values) < 2 * 300
    assert value("many", "other", "plus") == 600 - (256 - 2)
