"""Parameters: a class declares `Config`, and variants of it have values of their own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, Field, model_validator

import ors.testing
from ors import Environment, Server, ToolOutput, tool
from ors.errors import InvalidEnvironment
from tests.support import parameters


class Sums(Environment):
    """Adds numbers."""

    class Config(BaseModel):
        difficulty: int = Field(3, ge=1, le=99, description="How many tasks there are.")
        words: list[str] = []

        @model_validator(mode="after")
        def fits(self) -> "Sums.Config":
            if len(self.words) > self.difficulty:
                raise ValueError("more words\nthan difficulty")
            return self

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, int]]:
        return [{"a": n} for n in range(cls.config.difficulty)]

    def get_prompt(self) -> str:
        return f"Difficulty {self.config.difficulty}."

    @tool
    def submit(self) -> ToolOutput:
        """Ends the episode."""
        return ToolOutput("Done.", reward=1.0, finished=True)


class Demanding(Sums):
    class Config(BaseModel):
        level: str


async def test_variants_of_one_environment_are_served_side_by_side() -> None:
    hard = Sums.configured("hard", difficulty=9)
    async with ors.testing.client(Server([Sums, hard, hard.configured("words", words=["a"])])) as client:
        assert await client.list_environments() == ["sums", "hard", "words"]
        counts = [await client.environment(name).num_tasks("train") for name in ("sums", "hard", "words")]
        assert counts == [3, 9, 9]
        async with client.environment("hard").session(split="train", index=8) as session:
            assert [block.text for block in await session.get_prompt()] == ["Difficulty 9."]  # type: ignore[union-attr]
    assert Sums.config.difficulty == 3


@pytest.mark.parametrize(
    ("cls", "parameters", "message"),
    [
        (Sums, {"difficulty": "many"}, "Sums cannot be configured with difficulty='many': Input should be a"),
        (Sums, {"difficulty": 0}, "difficulty=0: Input should be greater than or equal to 1"),
        (Sums, {"words": [1]}, "words.0=1: Input should be a valid string"),
        (Sums, {"dificulty": 5}, "Sums has no parameter 'dificulty'; its parameters: difficulty, words"),
        (Sums, {"words": ["a"] * 4}, "Sums cannot be configured: Value error, more words than difficulty"),
        (type("Plain", (Environment,), {}), {"x": 1}, "Plain has no parameters: it declares no class Config"),
    ],
)
def test_a_wrong_value_is_one_clear_line(cls: Any, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidEnvironment) as caught:
        cls.configured(**parameters)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_asks_for_parameters_without_a_default() -> None:
    with pytest.raises(InvalidEnvironment, match="needs the parameter 'level': Demanding"):
        Server([Demanding.configured("other")])
    assert Server([Demanding.configured(level="a")])


def test_parameters_that_are_no_json_are_found_at_the_start() -> None:
    class Odd(Sums):
        class Config(BaseModel):
            rule: Callable[[int], int] = abs

    with pytest.raises(InvalidEnvironment, match=r"Odd.Config cannot be written as JSON"):
        Server([Odd])


def test_names_of_an_authors_own_stay_theirs() -> None:
    class Own(Sums):
        Config: ClassVar[Any] = {"not": "a model"}

        @tool
        def config(self) -> ToolOutput:
            """A tool of this name."""
            return ToolOutput("mine")

    assert {each.name for each in Own.list_tools().tools} == {"submit", "config"}
    Server([Own.configured("other")])


def test_tests_take_an_environment_by_its_installed_name_with_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sums_kit-1.0.dist-info").mkdir()
    points = "[ors.environments]\nsums-kit = tests.support.parameters:Sums\n"
    (tmp_path / "sums_kit-1.0.dist-info/entry_points.txt").write_text(points)
    (tmp_path / "sums_kit-1.0.dist-info/METADATA").write_text("Name: sums-kit\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    for target in ("sums-kit", "sums-kit==1.0", parameters.SUMS):
        assert ors.testing.environment(target, config={"difficulty": 5}).config.difficulty == 5
    with pytest.raises(InvalidEnvironment, match="has no parameter 'x'"):
        ors.testing.environment("sums-kit", config={"x": 5})
    with pytest.raises(ValueError, match=r"1\.0 is installed, not 2"):
        ors.testing.environment("sums-kit==2")
