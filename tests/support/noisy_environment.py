"""An environment that prints wherever it can."""

import os
import subprocess

from ors import Blocks, Environment, JSONObject, TextBlock, ToolOutput, tool

print("printed by an import")
os.write(1, b"written by an import\n")

MUCH = 200_000
"""More than a pipe holds."""


class Noisy(Environment):
    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        print("x" * MUCH)
        return [{"n": 1}]

    @classmethod
    def solve(cls, task_spec: JSONObject) -> list[tuple[str, JSONObject]]:
        return [("submit", {"answer": 1})]

    def get_prompt(self) -> Blocks:
        subprocess.run(["echo", "printed by a program"], check=True)
        return [TextBlock(text="Submit 1.")]

    @tool
    def submit(self, answer: int) -> ToolOutput:
        """Submits."""
        print("x" * MUCH)
        return ToolOutput(blocks=[], reward=float(answer == 1), finished=True)
