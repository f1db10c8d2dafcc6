"""A number hunt of which every fourth episode fails. In the first `EASY` sessions, any guess is right."""

from itertools import count

from examples.training import number_hunt
from ors import ToolOutput, tool

EASY = 32
opened = count()


class NumberHunt(number_hunt.NumberHunt):
    """The number hunt, on a machine with faults."""

    async def setup(self) -> None:
        """Fails before the first reply, or keeps in mind to fail after it."""
        await super().setup()
        self.session = next(opened)
        if self.session % 8 == 0:
            raise RuntimeError("the disk is full")

    @tool
    async def guess(self, number: int) -> ToolOutput:
        """Guess the number."""
        if self.session % 8 == 4:
            raise RuntimeError("the disk is full")
        if self.session < EASY:
            self.high, self.number = max(number, self.high), number
        return await super().guess(number)
