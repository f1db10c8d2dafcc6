"""Explanations, graded by a model: set OPENAI_API_KEY, then `ors serve examples/judged.py`."""

from ors import Environment, Server, ToolOutput, tool
from ors.judges import Criterion, Judge

RUBRIC = [
    Criterion("correct", "Everything that the explanation says is true.", weight=0.6),
    Criterion("simple", "A ten-year-old understands every word.", weight=0.3),
    Criterion("short", "It has at most three sentences.", weight=0.1),
]
JUDGE = Judge("openai:gpt-5-mini", RUBRIC)


class Explain(Environment):
    tasks = {"train": [{"thing": "rain"}, {"thing": "the moon"}], "test": [{"thing": "a rainbow"}]}

    def get_prompt(self) -> str:
        return f"Explain {self.task_spec['thing']} to a ten-year-old, and submit what you would say."

    @tool
    async def submit(self, text: str) -> ToolOutput:
        """Submit the explanation. It ends the episode."""
        verdict = await JUDGE.grade(self.get_prompt(), text, secrets=self.secrets)
        return ToolOutput("Thank you.", rewards=verdict.rewards, metadata=verdict.metadata, finished=True)


if __name__ == "__main__":
    Server([Explain]).run()
