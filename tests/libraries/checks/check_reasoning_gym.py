"""reasoning-gym: every dataset, its own answers, and answers that earn too much by its scorers."""

import asyncio
import json
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ors.testing
from ors.client import ToolCallError
from ors.errors import InvalidEnvironment
from ors.libraries import library_environments
from ors.libraries.reasoning_gym import score

ALL: Any = {cls.__name__: cls for cls in library_environments("reasoning_gym:")}
SEEDS = (0, 1_000_000)


def test_every_dataset_that_builds_is_listed() -> None:
    assert len(ALL) == 105
    assert "composite" not in ALL


@pytest.mark.parametrize("name", ALL)
def test_the_own_answer_earns_1_and_lists_of_guesses_nothing(name: str) -> None:
    cls = ALL[name]
    entries = [cls._generated(seed) for seed in SEEDS]
    if cls.solve is None:
        assert all(entry["answer"] is None for _, entry in entries)
        return
    with ThreadPoolExecutor(2) as threads:
        solved = list(threads.map(cls.solve, [{"seed": seed} for seed in SEEDS]))
    for (data, entry), solution in zip(entries, solved, strict=True):
        key = entry["answer"]
        assert solution == [("submit", {"answer": key})]
        assert score(data, entry, f" {key}\n") == 1.0
        wrong = [other["answer"] for _, other in entries if other["answer"] != key]
        for guesses in ([*wrong, key, "or"], [key, *wrong, "or"], ["I think", key, "or not"]):
            assert score(data, entry, "\n".join(guesses)) == 0.0, guesses
        assert score(data, entry, "foo") < 1.0
        assert score(data, entry, "") == 0.0


def test_a_dataset_that_draws_from_the_global_numbers_gives_the_same_question_each_time() -> None:
    def questions() -> list[str]:
        return [ALL["list_functions"]._generated(seed)[1]["question"] for seed in range(6)]

    before = questions()
    random.seed(7)
    assert questions() == before


@pytest.mark.parametrize(("answer", "reward"), [(None, 1.0), ("-1", 0.0)])
async def test_a_task_is_a_seed_and_its_answer_is_graded_once(answer: str | None, reward: float) -> None:
    cls = ALL["leg_counting"]
    async with ors.testing.client(cls) as client:
        tasks = await client.environment("leg_counting").get_task_range("test", 3, 5)
        assert [task.task_spec for task in tasks] == [{"seed": 1_000_003}, {"seed": 1_000_004}]
    async with ors.testing.session(cls, split="test", index=3) as session:
        right = cls.solve({"seed": 1_000_003})[0][1]["answer"]
        output = await session.call_tool("submit", {"answer": answer or right})
        assert (output.reward, output.finished) == (reward, True)
        with pytest.raises(ToolCallError):
            await session.call_tool("submit", {"answer": right})


def test_settings_of_a_dataset_are_parameters() -> None:
    (cls,) = library_environments("reasoning_gym:leg_counting")
    easy: Any = cls.configured(max_animals=3, size=5)
    assert asyncio.run(easy.num_tasks("train")) == 5
    assert easy._generated(1)[1]["question"] != ALL["leg_counting"]._generated(1)[1]["question"]
    with pytest.raises(InvalidEnvironment, match="max_animals='many'"):
        cls.configured(max_animals="many")
    with pytest.raises(InvalidEnvironment, match="cannot be played here"):
        cls.configured(min_animals=9, max_animals=3).list_splits()
    (mixed,) = library_environments("reasoning_gym:composite")
    with pytest.raises(InvalidEnvironment, match="at least one dataset"):
        mixed.list_splits()
    assert mixed.configured(datasets=[{"name": "leg_counting", "weight": 1.0, "config": {}}]).list_splits()


def test_one_command_evaluates_the_gold_answers(tmp_path: Path) -> None:
    command = [
        "eval",
        "reasoning_gym:leg_counting",
        "--model",
        "gold",
        "--tasks",
        "0:20",
        "--out",
        str(tmp_path),
    ]
    done = _ors(*command, "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    assert [line["reward"] for line in lines] == [1.0] * 20


def test_commands_take_names_and_refuse_others() -> None:
    listed = json.loads(_ors("list", "reasoning-gym:sudoku,leg_counting", "--json").stdout)
    assert [one["name"] for one in listed] == ["sudoku", "leg_counting"]
    refused = _ors("list", "reasoning_gym:sodoku")
    assert refused.returncode == 3
    assert refused.stderr == "Error: reasoning-gym has no dataset 'sodoku': see `ors list reasoning_gym:`\n"


def _ors(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "ors", *words], capture_output=True, text=True, timeout=120)
