"""Environments whose episodes end with the agent's last message."""

from ors import Blocks, Environment, JSONObject, TextBlock, ToolOutput, terminal, tool

WORDS = ["apple", "banana", "cherry", "damson", "elder"]


class Essay(Environment):
    """Has no other tool than the one for the last message."""

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"word": word} for word in WORDS]

    @classmethod
    def solve(cls, task_spec: JSONObject) -> list[tuple[str, JSONObject]]:
        return [("grade", {"answer": str(task_spec["word"])[::-1]})]

    def get_prompt(self) -> Blocks:
        return [TextBlock(text=f"Spell {self.task_spec['word']} backwards.")]

    @terminal
    @tool
    def grade(self, answer: str) -> ToolOutput:
        """Grades the answer."""
        right = answer == str(self.task_spec["word"])[::-1]
        text = f"you said {answer}"
        return ToolOutput(blocks=[TextBlock(text=text)], reward=float(right), finished=True)


class Generous(Essay):
    """Pays for every message."""

    @terminal
    @tool
    def grade(self, answer: str) -> ToolOutput:
        """Grades nothing."""
        return ToolOutput(blocks=[], reward=1.0, finished=True)


class Garden(Essay):
    """Has another tool, and one for the end that takes nothing and is not shared."""

    @tool
    def dig(self) -> ToolOutput:
        """Digs."""
        self.dug = True
        return ToolOutput(blocks=[TextBlock(text="dug")])

    @terminal
    @tool(shared=False)
    def grade(self) -> ToolOutput:  # type: ignore[override]
        """Looks at the garden."""
        return ToolOutput(blocks=[], reward=float(getattr(self, "dug", False)), finished=True)


class Plain(Essay):
    """Has no tool for the last message."""

    @tool
    def grade(self, answer: str) -> ToolOutput:
        """Takes an answer."""
        return ToolOutput(blocks=[])
