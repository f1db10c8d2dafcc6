"""Named rewards of episodes: played, recorded, counted, compared and exported."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import pytest

import ors.testing
from ors._rewards import MOST_COMPONENTS
from ors.rollouts import EpisodeRecord, Failed, Reduction, TaskRef, Truncated, play
from ors.rollouts.episodes.rules import EpisodeLimits, reduce_components
from ors.rollouts.episodes.scoring import Scoring
from ors.rollouts.records import Entry, RunInfo, RunWriter, check, compare, export_run, read_run, summarize
from ors.rollouts.records.writer import declare
from ors.types import RewardSpec
from tests.rollouts.records.test_statistics import INFRASTRUCTURE, entry
from tests.support.episode_records import LOST, episode
from tests.support.essay_environment import Essay
from tests.support.recorded import recording
from tests.support.scripted_agents import Script, call, calls

DRAFT = calls(call("draft", tidy=0.25))
SUBMIT = calls(call("submit", correct=1.0, tidy=0.5))


async def played(*replies: Any, reward: Reduction = "sum", **rules: Any) -> EpisodeRecord:
    async with ors.testing.client(Essay) as client:
        session = client.environment("essay").session(split="train", index=0)
        return await play(session, Script(*replies), reward=reward, **rules)


@pytest.mark.parametrize(
    ("reward", "whole", "parts"),
    [
        ("sum", 1.75, {"tidy": 0.75, "correct": 1.0}),
        ("last", 1.5, {"tidy": 0.5, "correct": 1.0}),
        ("max", 1.5, {"tidy": 0.5, "correct": 1.0}),
        (min, 0.25, {"tidy": 0.25, "correct": 1.0}),
    ],
)
async def test_each_name_is_reduced_like_the_reward(
    reward: Reduction, whole: float, parts: dict[str, float]
) -> None:
    record = await played(DRAFT, SUBMIT, reward=reward)
    assert (record.reward, record.rewards) == (whole, (0.25, 1.5))
    assert record.components == parts
    assert [each.components for each in record.messages if each.role == "tool"] == [
        {"tidy": 0.25},
        {"correct": 1.0, "tidy": 0.5},
    ]


async def test_a_failed_episode_has_no_components_and_a_truncated_one_has_what_it_earned() -> None:
    failed = await played(DRAFT, calls(call("fail")))
    assert isinstance(failed.outcome, Failed)
    assert (failed.reward, failed.components) == (None, {})
    counted = await played(DRAFT, calls(call("fail")), failed_reward={"environment": 0.0})
    assert (counted.reward, counted.components) == (0.0, {})
    truncated = await played(DRAFT, limits=EpisodeLimits(turns=1))
    assert isinstance(truncated.outcome, Truncated)
    assert (truncated.reward, truncated.components) == (0.25, {"tidy": 0.25})


@pytest.mark.parametrize("reduction", [lambda given: given[1], lambda given: nan, lambda given: None])
def test_a_component_that_cannot_be_reduced_is_left_out(
    reduction: Callable[[Sequence[float]], float],
) -> None:
    assert reduce_components([{"a": 1.0}], reduction) == {}


def test_a_run_keeps_components_for_its_index_and_its_episodes(tmp_path: Path) -> None:
    records = [episode(0, 1.2, components={"correct": 1.0, "format": 0.2}), episode(1, 1.0)]
    with RunWriter.create(tmp_path / "run", RunInfo.gathered({})) as writer:
        for record in records:
            writer.append(record)
        with pytest.raises(ValueError, match=r"components\.correct"):
            writer.append(episode(2, components={"correct": nan}))
    run = read_run(tmp_path / "run")
    assert [each.components for each in run.entries] == [{"correct": 1.0, "format": 0.2}, {}]
    assert list(run.episodes()) == records
    first, second = (json.loads(line) for line in (tmp_path / "run/episodes.jsonl").read_text().splitlines())
    assert list(first).index("components") < list(first).index("messages")  # the index reads no further
    assert "components" not in second


def test_recorded_sessions_have_the_sums_of_their_components(tmp_path: Path) -> None:
    with recording(tmp_path / "run", [Essay]) as lab:
        for last in ("submit", "fail"):
            sid = lab.raw.post("/create_session").json()["sid"]
            lab.raw.post("/create", {"env_name": "essay", "split": "train", "index": 0}, sid=sid)
            lab.raw.call(sid, "draft", {"tidy": 0.25}, "essay")
            lab.raw.call(sid, last, {"correct": 1.0, "tidy": 0.5} if last == "submit" else {}, "essay")
            lab.raw.post("/delete", sid=sid)
    done, failed = sorted(lab.records(), key=lambda each: each.outcome.type == "failed")
    assert (done.reward, done.components) == (1.75, {"tidy": 0.75, "correct": 1.0})
    assert (failed.reward, failed.components) == (None, {})


def test_component_means_add_up_to_that_of_the_reward() -> None:
    entries = [
        entry(0, 1.5, components={"correct": 1.0, "tidy": 0.5}),
        entry(0, 0.25, components={"tidy": 0.25}),
        entry(1, None),  # counts as 0
        entry(2, None, INFRASTRUCTURE, components={"correct": 9.0}),  # left out
    ]
    summary = summarize(entries)
    assert summary.reward is not None
    assert summary.reward.mean == pytest.approx(1.75 / 3)
    assert {name: each.mean for name, each in summary.components.items()} == pytest.approx(
        {"correct": 1 / 3, "tidy": 0.25}
    )
    for each in summary.components.values():  # shares, so their intervals are too
        assert each.low is not None
        assert each.high is not None
        assert 0 <= each.low < each.mean < each.high <= 1
    nothing = Scoring(unscored_reward=None)
    left = summarize([entry(0, 1.0, components={"a": 1.0}), entry(1, None, scoring=nothing)])
    assert left.components["a"].mean == 1.0


def test_another_environment_does_not_count_in_a_component_that_it_never_gives() -> None:
    other = [entry(n, 1.0, components={"style": 1.0}) for n in range(3)]
    other = [replace(each, task=replace(each.task, environment="other")) for each in other]
    summary = summarize([entry(0, 0.5, components={"correct": 0.5}), *other])
    assert {name: each.mean for name, each in summary.components.items()} == {"style": 1.0, "correct": 0.5}


def test_only_the_commonest_names_are_counted() -> None:
    rare = [entry(n, 1.0, components={"often": 1.0, f"task {n}": 1.0}) for n in range(2 * MOST_COMPONENTS)]
    found = summarize(rare).components
    assert len(found) == MOST_COMPONENTS
    assert next(iter(found)) == "often"
    assert found["often"].mean == 1.0


def test_two_runs_are_compared_component_by_component() -> None:
    before = [entry(n, 1.0, components={"correct": 0.0, "tidy": 1.0, "old": 0.0}) for n in range(8)]
    after = [entry(n, 1.0, components={"correct": 1.0, "tidy": 0.0, "new": 0.0}) for n in range(8)]
    found = compare(before, after)
    assert found is not None
    assert found.difference.mean == 0.0
    assert {name: each.difference.mean for name, each in found.components.items()} == {
        "correct": 1,
        "tidy": -1,
    }
    assert found.components["correct"].is_significant
    assert found.components["correct"].p == pytest.approx(2 / 2**8)
    assert [each.difference for each in found.components["tidy"].changes] == [-1.0] * 8


async def test_trajectories_have_the_components_of_the_episode_and_of_its_steps(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run", RunInfo.gathered({})) as writer:
        writer.append(await played(DRAFT, SUBMIT))
        writer.append(episode(1, 1.0))
        writer.append(episode(2, None, outcome=LOST, task=TaskRef("essay", "train", 2)))
    export_run(read_run(tmp_path / "run"), "atif", tmp_path / "out", outcomes=("scored", "failed"))
    extras = [json.loads(path.read_text())["extra"] for path in (tmp_path / "out").glob("*.json")]
    (named,) = (each for each in extras if "components" in each)
    assert named["components"] == {"tidy": 0.75, "correct": 1.0}
    assert named["step_components"] == [{"tidy": 0.25}, {"correct": 1.0, "tidy": 0.5}]


def test_a_declared_range_bounds_the_interval_of_the_mean() -> None:
    """The interval of rewards from 0 to 10 is ten times that of the same rewards from 0 to 1."""
    values = [1.0, 1.0, 0.9, 1.0, 0.2]
    small = summarize([entry(n, value) for n, value in enumerate(values)]).reward
    declared = summarize(
        [entry(n, 10 * value - 5, range=(-5.0, 5.0)) for n, value in enumerate(values)]
    ).reward
    unknown = summarize([entry(n, 10 * value - 5) for n, value in enumerate(values)]).reward
    assert small is not None
    assert declared is not None
    assert unknown is not None
    assert (small.low, small.high) != (None, None)
    assert declared.low == pytest.approx(10 * (small.low or 0) - 5)
    assert declared.high == pytest.approx(10 * (small.high or 0) - 5)
    assert (declared.high or 0) < 5 < (unknown.high or 0)
    outside = summarize([entry(n, value, range=(0.0, 0.5)) for n, value in enumerate(values)]).reward
    plain = summarize([entry(n, value, range=(-99.0, 0.5)) for n, value in enumerate(values)]).reward
    assert outside == plain  # a range that rewards leave bounds nothing


def test_a_declared_range_bounds_the_difference_of_two_runs() -> None:
    def run(*values: float) -> list[Entry]:
        return [entry(n, value, range=(0.0, 4.0)) for n, value in enumerate(values)]

    found = compare(run(0.0, 0.0, 4.0), run(4.0, 4.0, 4.0))
    assert found is not None
    assert found.difference.high == 4.0
    assert found.difference.low == pytest.approx(-3.0702, abs=1e-4)


def test_a_run_keeps_what_its_environment_declares(tmp_path: Path) -> None:
    declared = RewardSpec((0.0, 0.5), {"correct": "Whether it is right."})
    with RunWriter.create(tmp_path / "run", RunInfo.gathered({})) as writer:
        declare(writer.folder, {"adder": declared})
        writer.append(episode(0, 1.0))
    run = read_run(tmp_path / "run")
    assert run.info.rewards == {"adder": declared}
    assert [each.range for each in run.entries] == [(0.0, 0.5)]
    (found,) = (each for each in check(run.entries) if each.kind == "outside_range")
    assert "0 to 0.5" in found.text
