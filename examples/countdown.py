"""A million arithmetic puzzles, each made on demand: none is listed, none is kept."""

import ast
import operator
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated

from pydantic import BaseModel, Field

from ors import Blocks, Environment, JSONObject, Server, TextBlock, ToolError, ToolOutput, tool

NUM_TASKS = {"train": 1_000_000, "test": 10_000}
# Numbers in a puzzle. They differ, so no puzzle is in both splits.
NUMBERS = {"train": 4, "test": 5}
OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class Puzzle(BaseModel):
    """Numbers, and the target to make from them."""

    numbers: list[int]
    target: int


class Countdown(Environment):
    """Make the target from the given numbers, each used at most once, with + - * /.

    A split this large is not listed: instead of `list_tasks` there are `num_tasks` and `get_task`.
    """

    @classmethod
    def list_splits(cls) -> list[str]:
        """Puzzles of four numbers for training, of five for testing."""
        return list(NUM_TASKS)

    @classmethod
    async def num_tasks(cls, split: str) -> int:
        """The number of puzzles, without making any."""
        return NUM_TASKS[split]

    @classmethod
    async def get_task(cls, split: str, index: int) -> JSONObject:
        """The puzzle of an index: the same one every time."""
        return puzzle(random.Random(f"{split}/{index}"), NUMBERS[split]).model_dump()

    async def setup(self) -> None:
        """Reads the task."""
        self.puzzle = Puzzle.model_validate(self.task_spec)

    async def get_prompt(self) -> Blocks:
        """The puzzle."""
        numbers = ", ".join(map(str, self.puzzle.numbers))
        text = (
            f"Make {self.puzzle.target} from {numbers}. Use each number at most once, with + - * / and ( )."
        )
        return [TextBlock(text=text)]

    @tool
    async def submit(
        self,
        expression: Annotated[
            str,
            Field(
                description="Numbers, + - * / and ( ).",
                pattern=r"^[0-9+*/() -]{1,100}$",
                examples=["(3+4)*5"],
            ),
        ],
    ) -> ToolOutput:
        """Submit your solution. There is one attempt; an expression that breaks the rules does not count."""
        value, used = evaluated(expression)
        spare = list(self.puzzle.numbers)
        for number in used:
            if number not in spare:
                raise ToolError(f"{number} is not among the numbers, or used too often")
            spare.remove(number)
        solved = value == self.puzzle.target
        verdict = f"{expression} = {value}. " + ("Solved." if solved else f"Not {self.puzzle.target}.")
        return ToolOutput(blocks=[TextBlock(text=verdict)], reward=float(solved), finished=True)


def puzzle(chance: random.Random, count: int) -> Puzzle:
    """Makes a puzzle that has a solution: its target is made from its numbers."""
    while True:
        numbers = [chance.randint(1, 25) for _ in range(count)]
        target = numbers[0]
        for number in numbers[1:]:
            results = [target + number, target * number, abs(target - number)]
            target = chance.choice(results if target % number else [*results, target // number])
        if 10 <= target <= 999 and target not in numbers:
            return Puzzle(numbers=chance.sample(numbers, count), target=target)


def evaluated(expression: str) -> tuple[Fraction, list[int]]:
    """The value of an expression, and the numbers it uses."""
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except SyntaxError:
        raise ToolError(f"{expression!r} is not a complete expression") from None
    used: list[int] = []

    def value(node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=int(number)):
                used.append(number)
                return Fraction(number)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(left), value(right))
        raise ToolError("only numbers, + - * / and ( ) may be used")

    try:
        return value(tree), used
    except ZeroDivisionError:
        raise ToolError("the expression divides by zero") from None


if __name__ == "__main__":
    Server([Countdown]).run()
