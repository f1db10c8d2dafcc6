"""A program written for openreward: only its names are imported, and it starts its server by itself."""

import json
import os
import sys
from pathlib import Path

from openreward.environments import Environment, Server, TextBlock, ToolOutput, terminal, tool  # type: ignore
from openreward.environments.types import Blocks, JSONObject, Split  # type: ignore
from pydantic import BaseModel

FILE = Path("/orwd_data") / "tasks.json"
SPLITS = os.environ.get("PROGRAM_SPLITS", "train")


class Answer(BaseModel):
    answer: str


class Capitals(Environment):  # type: ignore[misc]
    def __init__(self, task_spec: JSONObject, secrets: dict[str, str] = {}) -> None:  # noqa: B006
        super().__init__(task_spec, secrets)
        judge = secrets.get("openai_api_key")
        if not judge:
            raise ValueError("openai_api_key is required")
        self.platform = secrets["api_key"]
        self.tries = 0

    @classmethod
    def list_splits(cls) -> list[Split]:
        return [Split(name=name, type="train") for name in SPLITS.split()]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        if FILE.exists():
            return json.loads(FILE.read_text())  # type: ignore[no-any-return]
        return [] if "fail" not in sys.argv else json.loads(FILE.read_text())

    async def get_prompt(self) -> Blocks:
        return [TextBlock(text=f"What is the capital of {self.task_spec['country']}?", type="text")]

    @tool(exclusive=True)
    async def submit(self, params: Answer) -> ToolOutput:
        """Submit the capital."""
        right = params.answer == self.task_spec["capital"]
        return ToolOutput(
            blocks=[TextBlock(text="Done.")], metadata={"right": right}, reward=float(right), finished=True
        )

    async def teardown(self) -> None:
        Path("ended").touch()

    @terminal
    @tool
    async def said(self, params: Answer) -> ToolOutput:
        """The last message."""
        return await self.submit(params)


if __name__ == "__main__":
    if "raise" in sys.argv:
        raise RuntimeError("the program has a fault")
    if "import" in sys.argv:
        import some_missing_package  # type: ignore[import-not-found]  # noqa: F401
    if "served" not in sys.argv:
        Server(environments=[Capitals], return_errors="none").run(host="0.0.0.0", port=8080)
