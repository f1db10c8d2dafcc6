"""Number hunts: find a hidden number in a few guesses. The way to win is to halve the range each time."""

from typing import ClassVar

from pydantic import BaseModel

from ors import Blocks, Environment, JSONObject, Server, TextBlock, ToolError, ToolOutput, tool


class Task(BaseModel):
    """The fields of a task."""

    high: int
    number: int


class NumberHunt(Environment):
    """Find a hidden number between 1 and at most 16 in five guesses. Success earns 1, anything else 0.

    Tasks differ in the largest number and in the hidden one. Even largest numbers are for training, odd ones
    for testing, so an agent that only remembers fails the test.
    """

    largest: ClassVar = range(10, 17)
    guesses: ClassVar = 5

    @classmethod
    def list_splits(cls) -> list[str]:
        """Tasks for training, and others for testing."""
        return ["train", "test"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        """One task for each number that can be hidden."""
        odd = split == "test"
        return [
            {"high": high, "number": number}
            for high in cls.largest
            if high % 2 == odd
            for number in range(1, high + 1)
        ]

    async def setup(self) -> None:
        """Reads the task."""
        task = Task.model_validate(self.task_spec)
        self.high, self.number = task.high, task.number
        self.left = self.guesses

    async def get_prompt(self) -> Blocks:
        """The rules."""
        text = f"Find the hidden number between 1 and {self.high}. You have {self.guesses} guesses."
        return [TextBlock(text=text)]

    @tool
    async def guess(self, number: int) -> ToolOutput:
        """Guess the number. The answer is "higher" or "lower" if the hidden number is."""
        if not 1 <= number <= self.high:
            raise ToolError(f"{number} is not between 1 and {self.high}")
        self.left -= 1
        found = number == self.number
        text = "found" if found else "higher" if self.number > number else "lower"
        over = found or self.left == 0
        return ToolOutput(blocks=[TextBlock(text=text)], reward=float(found) if over else None, finished=over)


class BigNumberHunt(NumberHunt):
    """Find a hidden number between 1 and at most 50 in seven guesses."""

    largest: ClassVar = range(30, 51)
    guesses: ClassVar = 7


if __name__ == "__main__":
    Server([NumberHunt, BigNumberHunt]).run()
