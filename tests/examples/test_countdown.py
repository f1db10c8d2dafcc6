import tracemalloc
from itertools import permutations, product

import pytest

from examples.countdown import Countdown, Puzzle, evaluated
from ors import ToolError
from tests.examples.conftest import Play
from tests.examples.episode import text
from tests.support.raw_http import Raw

LAST = 999_999


def solution(numbers: list[int], target: int) -> str:
    """By trying: left to right, in every order, with a difference taken either way round."""
    for order in permutations(numbers):
        for operators in product("+-*/~", repeat=len(numbers) - 1):
            expression = str(order[0])
            for symbol, number in zip(operators, order[1:], strict=True):
                pair = f"({number}-{expression})" if symbol == "~" else f"({expression}{symbol}{number})"
                expression = pair
            try:
                if evaluated(expression)[0] == target:
                    return expression
            except ToolError:
                continue
    raise AssertionError(f"{target} cannot be made from {numbers}")


def test_a_million_tasks_are_counted_and_reached_but_not_listed(examples: Raw) -> None:
    assert examples.post("/countdown/num_tasks", {"split": "train"}).json() == {"num_tasks": 1_000_000}
    refused = examples.post("/countdown/tasks", {"split": "train"})
    assert refused.status == 400
    assert "index-based API" in refused.detail
    task = examples.post("/countdown/task", {"split": "train", "index": LAST}).json()["task"]
    assert examples.post("/countdown/task_range", {"split": "train", "start": -2}).json()["tasks"][1] == task
    beyond = examples.post("/countdown/task", {"split": "train", "index": LAST + 1})
    assert (beyond.status, beyond.detail) == (400, "Invalid index: the split has 1000000 tasks")


@pytest.mark.untraced
async def test_memory_stays_where_it_is_however_many_tasks_are_made() -> None:
    async def made(start: int, count: int) -> None:
        for index in range(start, start + count):
            await Countdown.get_task("train", index)

    await made(0, 100)
    grown = []
    tracemalloc.start()
    try:
        for start in (500_000, 600_000, 700_000):  # other threads of this process may take some meanwhile
            few = tracemalloc.get_traced_memory()[0]
            await made(start, 2_000)
            grown.append(tracemalloc.get_traced_memory()[0] - few)
    finally:
        tracemalloc.stop()
    assert min(grown) < 16 * 1024


async def test_a_task_is_the_same_every_time_and_differs_from_its_neighbours() -> None:
    tasks = [Puzzle.model_validate(await Countdown.get_task("train", index)) for index in range(1000)]
    assert [Puzzle.model_validate(await Countdown.get_task("train", index)) for index in range(1000)] == tasks
    assert len({(tuple(sorted(task.numbers)), task.target) for task in tasks}) > 990
    # Written down, so that a change that would make other tasks of the same indices is seen.
    assert tasks[0] == Puzzle(numbers=[9, 20, 3, 25], target=695)


@pytest.mark.parametrize(("split", "index"), [("train", 0), ("train", LAST), ("test", 7)])
def test_a_solution_is_rewarded(examples: Raw, play: Play, split: str, index: int) -> None:
    task = examples.post("/countdown/task", {"split": split, "index": index}).json()["task"]
    episode = play("countdown", split, index)
    assert episode.prompt()[0]["text"].startswith(f"Make {task['target']} from {task['numbers'][0]}, ")
    output = episode.call("submit", expression=solution(**task))
    assert (output["reward"], output["finished"]) == (1.0, True)


def test_another_value_ends_the_episode_without_reward(examples: Raw, play: Play) -> None:
    task = examples.post("/countdown/task", {"split": "train", "index": 0}).json()["task"]
    number = task["numbers"][0]
    output = play("countdown", "train", 0).call("submit", expression=f"({number})")
    assert (output["reward"], output["finished"]) == (0.0, True)
    assert text(output) == f"({number}) = {number}. Not {task['target']}."


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("1000+1", "1000 is not among the numbers"),
        ("1+", "not a complete expression"),
        ("7(3)", "only numbers, + - * / and ( ) may be used"),
        ("2**9", "only numbers"),
        ("7//2", "only numbers"),
        ("-7", "only numbers"),
        ("3/(2-2)", "divides by zero"),
        ("__import__", "String should match pattern"),
        ("((((" * 25, "not a complete expression"),
    ],
)
def test_an_expression_against_the_rules_may_be_corrected(play: Play, expression: str, told: str) -> None:
    assert told in play("countdown", "train", 0).refused("submit", expression=expression)["error"]
