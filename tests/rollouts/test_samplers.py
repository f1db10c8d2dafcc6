"""TaskSampler: what it draws, and how it is saved."""

import json
from collections import Counter
from itertools import islice
from typing import Any

import pytest

from ors.client import AsyncEnvironment, Task
from ors.rollouts import TaskRef, TaskSampler, Truncated, rollouts
from tests.support.episode_records import LOST, episode
from tests.support.scripted_agents import WIN, Script

TASKS = [("train", index) for index in range(10)]
BOTH = [*TASKS, *(("extra", index) for index in range(5))]


def drawn(sampler: TaskSampler, count: int = 4000) -> Counter[Any]:
    return Counter(islice(sampler, count))


def varied(sampler: TaskSampler, *indices: int) -> TaskSampler:
    """The sampler after ten episodes of each task: these had varied rewards, the others always 1."""
    for _, index in TASKS:
        for sample in range(10):
            reward = float(sample % 2) if index in indices else 1.0
            sampler.add(episode(index, reward, sample=sample, split="train"))
    return sampler


def test_a_uniform_sampler_draws_all_tasks_about_equally_often() -> None:
    counts = drawn(varied(TaskSampler(TASKS), 3))
    assert set(counts) == set(TASKS)
    assert all(320 < count < 480 for count in counts.values())


def test_tasks_whose_rewards_vary_are_drawn_more_often_and_no_task_is_dropped() -> None:
    counts = drawn(varied(TaskSampler(TASKS, weights="variance"), 3))
    others = [counts["train", index] for index in range(10) if index != 3]
    assert 1900 < counts["train", 3] < 2300  # ten times as often as each of nine others
    assert all(130 < count < 290 for count in others)


def test_a_task_that_was_hardly_played_counts_as_varied() -> None:
    sampler = TaskSampler(TASKS, weights="variance")
    sampler.add(episode(0, 1.0, split="train"))
    assert all(320 < count < 480 for count in drawn(sampler).values())


def test_old_rewards_fade() -> None:
    sampler = varied(TaskSampler(TASKS, weights="variance"), 3, 4)
    for _ in range(100):
        sampler.add(episode(3, 1.0, split="train"))
    counts = drawn(sampler)
    assert counts["train", 4] > 5 * counts["train", 3]


def test_episodes_without_a_reward_teach_the_sampler_nothing() -> None:
    sampler = varied(TaskSampler(TASKS, weights="variance"), 3)
    before = sampler.state()
    sampler.add(episode(5, None, split="train", outcome=LOST))
    sampler.add(episode(5, 0.0, split="train", outcome=LOST))
    sampler.add(episode(5, None, split="train"))
    assert sampler.state() == before
    sampler.add(episode(5, 0.0, split="train", outcome=Truncated("turns")))
    assert sampler.state() != before


def test_splits_are_drawn_in_their_ratio_whatever_their_sizes() -> None:
    counts = drawn(TaskSampler(BOTH, splits={"train": 1, "extra": 3}))
    assert 2850 < sum(counts["extra", index] for index in range(5)) < 3150
    assert set(counts) == set(BOTH)
    assert {split for split, _ in drawn(TaskSampler(BOTH, splits={"extra": 1}), 100)} == {"extra"}


def test_the_ratio_holds_for_weighted_tasks_too() -> None:
    sampler = varied(TaskSampler(BOTH, weights="variance", splits={"train": 1, "extra": 1}), 3)
    counts = drawn(sampler)
    assert 1850 < sum(counts["extra", index] for index in range(5)) < 2150
    assert counts["train", 3] > 5 * counts["train", 4]


def test_the_seed_decides_the_draws() -> None:
    first, again, other = (list(islice(TaskSampler(TASKS, seed=seed), 50)) for seed in (1, 1, 2))
    assert first == again != other


def test_a_restored_sampler_goes_on_with_the_same_draws() -> None:
    sampler = varied(TaskSampler(TASKS, seed=7, weights="variance"), 3, 8)
    list(islice(sampler, 123))
    state = json.loads(json.dumps(sampler.state()))
    other = TaskSampler(TASKS, weights="variance")
    other.restore(state)
    sampler.add(episode(4, 0.0, split="train"))
    other.add(episode(4, 0.0, split="train"))
    assert list(islice(sampler, 200)) == list(islice(other, 200))
    assert sampler.state() == other.state()


@pytest.mark.parametrize(
    "other",
    [
        TaskSampler(TASKS[:-1]),
        TaskSampler([*TASKS[1:], TASKS[0]]),
        TaskSampler(TASKS, weights="variance"),
        TaskSampler(TASKS, splits={"train": 1}),
        TaskSampler([TaskRef("maze", *task) for task in TASKS if isinstance(task, tuple)]),
    ],
)
def test_the_state_of_other_tasks_or_arguments_is_refused(other: TaskSampler) -> None:
    before = other.state()
    with pytest.raises(ValueError, match="other tasks, weights or splits"):
        other.restore(TaskSampler(TASKS, seed=3).state())
    assert other.state() == before


@pytest.mark.parametrize("state", [{}, {"seed": 1, "drawn": "x", "largest": 0, "rewards": {}}, {"seed": 1}])
def test_a_value_that_is_no_state_is_refused(state: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not the state of a TaskSampler"):
        TaskSampler(TASKS).restore(state)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tasks": []}, "no tasks"),
        ({"splits": {"nope": 1}}, "No task is in the split 'nope'"),
        ({"splits": {}}, "splits is empty"),
        ({"splits": {"train": 0}}, "must be over 0"),
        ({"weights": "most"}, "weights is"),
    ],
)
def test_arguments_that_draw_nothing_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TaskSampler(**{"tasks": TASKS, **arguments})


def test_records_find_their_tasks_however_these_were_given() -> None:
    refs: list[TaskRef | Task] = [TaskRef("adder", "train", 0), TaskRef("adder", "train", 1)]
    whole: list[TaskRef | Task] = [Task("adder", {"id": 0}), Task("adder", {"id": 1})]
    for tasks in (refs, whole):
        sampler = TaskSampler(tasks, weights="variance")
        for sample in range(10):
            for number, each in enumerate(tasks):
                task = each if isinstance(each, TaskRef) else TaskRef("adder", spec=each.task_spec)
                sampler.add(episode(reward=float(number and sample % 2), sample=sample, task=task))
        first = sum(task is tasks[0] for task in islice(sampler, 1000))
        assert 50 < first < 140


async def test_a_sampler_feeds_rollouts_and_learns_from_their_records(lab: AsyncEnvironment) -> None:
    sampler = TaskSampler(
        [Task("lab", {"id": f"sampled-{number}"}) for number in range(3)], weights="variance"
    )
    played = 0
    async for record in rollouts(lab, sampler, Script(WIN), samples=2, concurrency=4, reward="last"):
        sampler.add(record)
        played += 1
        if played == 40:
            break
    counts = [count for count, *_ in sampler.state()["rewards"].values()]
    assert (len(counts), sum(counts)) == (3, 40)
