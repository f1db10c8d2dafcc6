"""Tasks and steps that a class declares instead of writing methods for them."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest

import ors.testing
from ors import Environment, Server, ToolError, ToolOutput, tool
from ors.errors import InvalidEnvironment, ToolCallError
from tests.support.live_server import serving
from tests.support.raw_http import Raw


class Counter(Environment):
    """Counts."""

    tasks: ClassVar[Any] = {"train": [{"n": 1}, {"n": 2}], "test": [{"n": 3}]}
    max_steps = 3

    def get_prompt(self) -> str:
        return f"Count to {self.task_spec['n']}."

    @tool
    def count(self, reward: float | None = None, refuse: bool = False) -> ToolOutput:
        """Counts one."""
        if refuse:
            raise ToolError("no")
        return ToolOutput(blocks=[], reward=reward)


def test_tasks_are_declared_by_split() -> None:
    with serving(Server([Counter])) as url:
        raw = Raw(url)
        assert [split["name"] for split in raw.get("/counter/splits").json()] == ["train", "test"]
        assert raw.post("/counter/tasks", {"split": "test"}).json()["tasks"] == [{"n": 3}]
        assert raw.post("/counter/num_tasks", {"split": "train"}).json()["num_tasks"] == 2


async def test_a_file_or_a_folder_beside_the_module_has_the_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    for name, tasks in {"tasks": [1], "data/train": [2, 3], "data/test": [4]}.items():
        lines = [json.dumps({"n": n}) for n in tasks]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    (tmp_path / "data" / "README.md").write_text("not tasks")
    code = "from tests.test_declared_tasks import Counter\n"
    code += 'class One(Counter):\n    tasks = "tasks.jsonl"\n'
    code += 'class Many(Counter):\n    tasks = "data"\n'
    code += 'class Mixed(Counter):\n    tasks = {"train": "data/train.jsonl", "own": [{"n": 9}]}\n'
    (tmp_path / "declaring.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir("/")
    declaring = import_module("declaring")

    async def listed(cls: type[Environment]) -> dict[str, list[int]]:
        splits = [str(split) for split in cls.list_splits()]  # type: ignore[union-attr]
        return {split: [task["n"] for task in await cls.get_task_range(split)] for split in splits}

    assert await listed(declaring.One) == {"train": [1]}
    assert await listed(declaring.Many) == {"test": [4], "train": [2, 3]}
    assert await listed(declaring.Mixed) == {"train": [2, 3], "own": [9]}


def test_methods_of_the_author_win() -> None:
    class Own(Environment):
        tasks: ClassVar[Any] = {"declared": [{"n": 1}]}

        @classmethod
        def list_splits(cls) -> list[str]:
            return ["written"]

        @classmethod
        def list_tasks(cls, split: str) -> list[dict[str, Any]]:
            return [{"n": 2}]

        def get_prompt(self) -> str:
            return ""

    assert Own.list_splits() == ["written"]
    assert Own.list_tasks("written") == [{"n": 2}]


async def test_the_last_step_finishes_the_episode() -> None:
    async with ors.testing.session(Counter, split="train", index=0) as session:
        assert not (await session.call_tool("count", {"reward": 0.5})).finished
        with pytest.raises(ToolCallError, match="no"):
            await session.call_tool("count", {"refuse": True})
        last = await session.call_tool("count", {"reward": 0.25})
        assert (last.finished, last.reward) == (True, 0.25)
        with pytest.raises(ToolCallError, match="the episode has finished"):
            await session.call_tool("count")


async def test_a_refused_last_step_finishes_the_episode_too() -> None:
    async with ors.testing.session(Counter, split="train", index=0) as session:
        for _ in range(3):
            with pytest.raises(ToolCallError, match=r"^no"):
                await session.call_tool("count", {"refuse": True})
        with pytest.raises(ToolCallError, match="the episode has finished"):
            await session.call_tool("count")


async def test_a_fork_has_the_steps_that_are_left() -> None:
    async with ors.testing.session(Counter, split="train", index=0) as session:
        await session.call_tool("count")
        await session.call_tool("count")
        for fork in await session.fork(2):
            async with fork:
                assert (await fork.call_tool("count")).finished


@pytest.mark.parametrize("steps", [0, -1, 2.5, True, "ten"])
def test_steps_are_a_positive_whole_number(steps: Any) -> None:
    broken = type("Broken", (Counter,), {"max_steps": steps})
    with pytest.raises(InvalidEnvironment, match="max_steps must be a positive whole number"):
        Server([broken])
