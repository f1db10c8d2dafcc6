"""Environments for agents that play over MCP. Their rewards are numbers that nothing else has."""

import asyncio

from ors import Environment, TextBlock, ToolOutput, terminal, tool

HINT, RIGHT = 0.03125, 0.78125


class Hunt(Environment):
    """Finds a number."""

    tasks = {"train": [{"answer": "4"}, {"answer": "5"}]}

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text="Call hint, then submit what it says.")]

    @tool
    def hint(self) -> ToolOutput:
        """Get a hint."""
        print("a word of the author, on standard output")
        return ToolOutput(blocks=[TextBlock(text=f"It is {self.task_spec['answer']}.")], reward=HINT)

    @tool
    async def wait(self) -> ToolOutput:
        """Wait for a long time."""
        await asyncio.sleep(3600)
        return ToolOutput(blocks=[])

    @tool
    def fail(self) -> ToolOutput:
        """Fail."""
        raise RuntimeError("the environment is broken")

    @tool
    def submit(self, answer: str) -> ToolOutput:
        """Submit the answer."""
        right = answer == self.task_spec["answer"]
        return ToolOutput(blocks=[TextBlock(text="Noted.")], reward=RIGHT if right else 0.0, finished=True)


class Essay(Environment):
    """Grades the last message, with no other tool."""

    tasks = {"train": [{"answer": "4"}]}

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text="Say 4.")]

    @terminal
    @tool
    def grade(self, message: str) -> ToolOutput:
        """Hand in the answer."""
        return ToolOutput(blocks=[TextBlock(text="Noted.")], reward=RIGHT if "4" in message else 0.0)
