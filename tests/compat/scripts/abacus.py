"""An environment that any of the packages can serve: `python abacus.py <module> <port>`."""

# mypy: ignore-errors
# The package is known when it runs, so its types are not.

import asyncio
import importlib
import sys
from typing import Any

from pydantic import BaseModel


class Number(BaseModel):
    value: int


class Text(BaseModel):
    text: str


def made(package: Any) -> Any:
    """The environment's class, on the given package's `Environment`."""

    class Abacus(package.Environment):
        def __init__(self, task_spec: Any, secrets: Any) -> None:
            super().__init__(task_spec, secrets)
            self.total = task_spec["start"]
            self.given = dict(secrets)

        @classmethod
        def list_splits(cls) -> list[str]:
            return ["train", "test"]

        @classmethod
        def list_tasks(cls, split: str) -> list[dict[str, Any]]:
            return [{"start": n, "split": split} for n in range(7)]

        def get_prompt(self) -> list[Any]:
            return [package.TextBlock(text=f"Start at {self.total} – ends at ten.")]

        @package.tool
        async def add(self, number: Number) -> package.ToolOutput:
            """Adds to the total."""
            self.total += number.value
            done = self.total == 10
            return package.ToolOutput(
                blocks=[package.TextBlock(text=str(self.total))],
                metadata={"total": self.total},
                reward=1.0 if done else 0.0,
                finished=done,
            )

        @package.tool
        async def say(self, text: Text) -> package.ToolOutput:
            """Says it again."""
            return package.ToolOutput(blocks=[package.TextBlock(text=text.text)])

        @package.tool
        async def whisper(self) -> package.ToolOutput:
            """Tells the secrets."""
            return package.ToolOutput(
                blocks=[package.TextBlock(text=self.given.get("OPENAI_API_KEY", "none"))]
            )

        @package.tool
        async def wait(self) -> package.ToolOutput:
            """Takes a moment, in which the connection can break."""
            self.total += 100
            await asyncio.sleep(0.5)
            return package.ToolOutput(blocks=[package.TextBlock(text=str(self.total))])

        @package.tool
        async def drop(self) -> package.ToolOutput:
            """Breaks."""
            raise RuntimeError("beads everywhere\nreally")

    return Abacus


if __name__ == "__main__":
    module = importlib.import_module(sys.argv[1])
    module.Server([made(module)]).run(host="127.0.0.1", port=int(sys.argv[2]))
