"""An environment for MCP clients, with values that must never reach one."""

import time
from pathlib import Path
from typing import ClassVar

from ors import Blocks, Environment, ImageBlock, JSONObject, TextBlock, ToolError, ToolOutput, terminal, tool

REWARD = 0.7321987
STEP_REWARD = 0.1289341
ANSWER = "xyzzy-4711"
SECRET = "metadata-8a6f"
LONG = "a_tool_whose_name_is_far_too_long_for_a_model_that_takes_sixty_four"


class Vault(Environment):
    private_fields: ClassVar[list[str]] = ["answer"]

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"question": "open it", "answer": ANSWER}]

    def get_prompt(self) -> Blocks:
        return [TextBlock(text="Open the vault."), ImageBlock(data="aGk=", mimeType="image/png")]

    @tool
    async def hint(self) -> ToolOutput:
        """Gives a hint."""
        return ToolOutput("Look for it.", metadata={"note": SECRET}, reward=STEP_REWARD)

    @tool
    def picture(self, size: int) -> ToolOutput:
        """Draws."""
        return ToolOutput([TextBlock("drawn"), ImageBlock(data="A" * size, mimeType="image/png")])

    @tool
    def wait(self, path: str, size: int = 4) -> ToolOutput:
        """Waits for a file; then draws."""
        while not Path(path).exists():
            time.sleep(0.01)
        return self.picture(size)

    @tool
    def refuse(self) -> ToolOutput:
        """Refuses, under a reason that the server uses too."""
        raise ToolError("Not like that.", reason="not_found")

    @tool
    def fail(self) -> ToolOutput:
        """Fails."""
        raise RuntimeError("out of order")

    @tool
    def a_tool_whose_name_is_far_too_long_for_a_model_that_takes_sixty_four(self, text: str) -> ToolOutput:
        """Says it again."""
        return ToolOutput(text)

    @tool(shared=False)
    def of_this_task(self) -> ToolOutput:
        """Belongs to the task."""
        return ToolOutput("here")

    @terminal
    @tool
    def submit(self, answer: str) -> ToolOutput:
        """Ends the episode."""
        right = answer == self.task_spec.get("answer", ANSWER)
        return ToolOutput("Noted.", metadata={"note": SECRET}, reward=REWARD if right else 0.0, finished=True)
