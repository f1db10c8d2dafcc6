"""The difficulty of tasks: exported from a run, and read by a sampler of the same tasks in another order."""

import json
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from ors.rollouts import EpisodeRecord, TaskRef, TaskSampler, Truncated, Unscored, task_hash
from ors.rollouts.records import RunInfo, RunWriter, export_run, read_run
from tests.support.commands import refused
from tests.support.episode_records import LOST, episode

HARD: dict[str, Any] = {"a": 1, "b": {"c": [2, "ä"]}}
EASY: dict[str, Any] = {"a": 2}


def played(spec: dict[str, Any] | None, index: int, reward: float | None, **more: Any) -> EpisodeRecord:
    made = episode(index, reward, split="train", **more)
    return replace(made, task=TaskRef("adder", "train", index, spec))


def exported(folder: Path, *records: EpisodeRecord, config: dict[str, Any] | None = None) -> Path:
    with RunWriter.create(folder / "run", RunInfo(config=config or {})) as writer:
        for record in records:
            writer.append(record)
    export_run(read_run(folder / "run"), "difficulty", folder / "tasks.jsonl")
    return folder / "tasks.jsonl"


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_counts_is_exported_for_each_task_by_its_content(tmp_path: Path) -> None:
    path = exported(
        tmp_path,
        played(HARD, 0, 1.0, steps=2),
        played(HARD, 0, None, sample=1, outcome=Unscored()),
        played(HARD, 0, None, sample=2, outcome=LOST),
        played(HARD, 0, 0.5, sample=3, outcome=Truncated("turns", ""), steps=3),
        played(EASY, 1, None, outcome=LOST),
        config={"unscored_reward": -0.5},
    )
    (row,) = rows(path)
    where = {"environment": "adder", "split": "train", "index": 0}
    spread = {"mean": pytest.approx(1 / 3), "variance": pytest.approx(7 / 18)}
    assert row == {
        "task": task_hash(dict(reversed(HARD.items()))),
        **where,
        "attempts": 3,
        **spread,
        "length": 2.0,
    }


def test_a_sampler_knows_the_tasks_of_a_file_in_any_order(tmp_path: Path) -> None:
    records = [played(spec, i, float(sample % 2 if spec is HARD else 1), sample=sample)
               for i, spec in enumerate((HARD, EASY)) for sample in range(4)]  # fmt: skip
    path = exported(tmp_path, *records)
    now = [TaskRef("adder", "train", 0, {"a": 3}), *(TaskRef("adder", "train", 7 - n, spec)
           for n, spec in enumerate((EASY, HARD)))]  # fmt: skip
    counts = Counter(task.index for task in islice(TaskSampler.from_file(path, now, seed=3), 3000))  # type: ignore[union-attr]
    assert 5 * counts[7] < min(counts[0], counts[6]), counts


def test_tasks_of_the_same_content_are_told_apart_by_their_place(tmp_path: Path) -> None:
    path = exported(tmp_path, *(played({}, i, float(s % 2 * i), sample=s) for i in (0, 1) for s in range(4)))
    tasks = [TaskRef("adder", "train", index, {}) for index in (0, 1)]
    counts = Counter(task.index for task in islice(TaskSampler.from_file(path, tasks), 2000))  # type: ignore[union-attr]
    assert counts[1] > 5 * counts[0]


def test_a_file_that_does_not_fit_is_an_error_that_says_so(tmp_path: Path) -> None:
    path = exported(tmp_path, played(HARD, 0, 1.0))
    for tasks in ([TaskRef("adder", "train", 0)], [TaskRef("other", "train", 0, HARD)]):
        with pytest.raises(ValueError, match="has none of these tasks: give TaskRefs"):
            TaskSampler.from_file(path, tasks)
    path.write_text(path.read_text() + '{"messages": []}\n')
    with pytest.raises(ValueError, match=r"tasks\.jsonl:2 is not the difficulty of a task"):
        TaskSampler.from_file(path, [TaskRef("adder", "train", 0, HARD)])


def test_the_command_counts_everything_and_says_what_it_lacks(tmp_path: Path) -> None:
    exported(tmp_path, played(HARD, 0, 1.0), played(None, 1, 1.0))
    words = ("runs", "export", str(tmp_path / "run"), "--format", "difficulty", "--out", str(tmp_path / "d"))
    done = refused(*words)
    assert (done.code, len(rows(tmp_path / "d"))) == (0, 1)
    assert "train/1: the run does not have the content of this task" in done.err
    assert "leave out --min-reward" in refused(*words, "--min-reward", "1").err
