"""Environments with parameters, in a file that commands and adapters are given."""

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from ors import Environment, ToolOutput, tool

SUMS = f"{__file__}:Sums"


class Sums(Environment):
    """Adds numbers."""

    class Config(BaseModel):
        difficulty: int = Field(3, ge=1, le=99, description="How many tasks there are.")
        words: list[str] = []
        label: str = "none"
        level: Literal[1, 2] | None = 1

    private_fields: ClassVar[Any] = ["answer"]

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        return [{"a": n, "answer": n + cls.config.difficulty} for n in range(cls.config.difficulty)]

    def get_prompt(self) -> str:
        return repr(self.config)

    @tool
    def submit(self, answer: int) -> ToolOutput:
        """Ends the episode."""
        return ToolOutput("Done.", reward=float(answer == self.task_spec["answer"]), finished=True)

    @classmethod
    def solve(cls, task_spec: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        return [("submit", {"answer": task_spec["a"] + cls.config.difficulty})]

    def grade(self, transcript: Any) -> float:
        return float(self.config.difficulty)


class Level(Environment):
    """Has a parameter without a default."""

    class Config(BaseModel):
        level: str

    tasks: ClassVar[Any] = {"train": [{}]}

    def get_prompt(self) -> str:
        return repr(self.config)

    @tool
    def submit(self) -> ToolOutput:
        """Ends the episode."""
        return ToolOutput("Done.", finished=True)
