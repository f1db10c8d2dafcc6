"""An environment that needs a secret."""

from ors import Blocks, Environment, JSONObject, TextBlock, ToolOutput, tool


class Keyed(Environment):
    required_secrets = ("judge_key",)

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"n": 1}]

    def get_prompt(self) -> Blocks:
        return [TextBlock(text=f"A key of {len(self.secrets['judge_key'])} letters")]

    @tool
    def submit(self) -> ToolOutput:
        """Ends the episode."""
        return ToolOutput(blocks=[], reward=1.0, finished=True)
