"""An environment to evaluate agents on: two splits, private answers, a solution, slow and broken tasks."""

import asyncio
import os

from ors import Blocks, Environment, JSONObject, TextBlock, ToolOutput, tool


class Quiz(Environment):
    """Says which number to submit; the answer is private, tasks of the split "broken" fail in their setup."""

    private_fields = ("answer",)

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train", "test", "broken"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"split": split, "number": n, "answer": 7 * n} for n in range(30)]

    @classmethod
    def solve(cls, task_spec: JSONObject) -> list[tuple[str, JSONObject]]:
        return [("look", {}), ("submit", {"answer": task_spec["answer"]})]

    def setup(self) -> None:
        if self.task_spec["split"] == "broken":
            raise RuntimeError("the setup is broken")

    def get_prompt(self) -> Blocks:
        return [TextBlock(text=f"Submit seven times {self.task_spec['number']}.")]

    @tool
    async def look(self) -> ToolOutput:
        """Look around, which takes as long as QUIZ_SECONDS says."""
        await asyncio.sleep(float(os.environ.get("QUIZ_SECONDS", "0")))
        return ToolOutput(blocks=[TextBlock(text="nothing")], reward=0.25)

    @tool
    def submit(self, answer: int) -> ToolOutput:
        """Submit the answer."""
        right = answer == self.task_spec["answer"]
        return ToolOutput(blocks=[TextBlock(text=str(right))], reward=float(right), finished=True)
