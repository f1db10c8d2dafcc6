"""An environment whose rewards have names: some steps give one, the last gives two."""

from ors import Environment, JSONObject, ToolOutput, tool


class Essay(Environment):
    """Write and submit an essay."""

    tasks = {"train": [{"n": n} for n in range(4)]}

    @classmethod
    def solve(cls, task_spec: JSONObject) -> list[tuple[str, JSONObject]]:
        return [("draft", {"tidy": 0.25}), ("submit", {"correct": 1.0, "tidy": 0.5})]

    def get_prompt(self) -> str:
        return "Write an essay."

    @tool
    async def draft(self, tidy: float) -> ToolOutput:
        """Write a draft."""
        return ToolOutput("drafted", {"words": 3}, rewards={"tidy": tidy})

    @tool
    async def submit(self, correct: float, tidy: float) -> ToolOutput:
        """Submit it, which ends the episode."""
        return ToolOutput("read", rewards={"correct": correct, "tidy": tidy}, finished=True)

    @tool
    async def fail(self) -> ToolOutput:
        """Breaks the grader."""
        raise RuntimeError("the grader is broken")


class Graded(Essay):
    """Declares its rewards."""

    reward_range = (0, 3)
    reward_components = {"correct": "Whether the answer is right.", "tidy": "How tidy the text is."}
