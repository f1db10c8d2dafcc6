"""The environment that is measured: one source for both packages, which share their import name."""

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from ors import Blocks, Environment, TextBlock, ToolOutput, tool

SLOW_SECONDS = 2.0
LINE = "The quick brown fox jumps over the lazy dog, and nobody minds.\n"


class Answer(BaseModel):
    answer: str
    final: bool = False


class Size(BaseModel):
    kilobytes: int


def _graded(params: Answer) -> ToolOutput:
    text = f"You answered {params.answer}."
    return ToolOutput(blocks=[TextBlock(text=text)], reward=1.0, finished=params.final)


class Bench(Environment):
    @classmethod
    def list_splits(cls) -> Sequence[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> Sequence[dict[str, Any]]:
        return [{"id": str(number), "question": f"What is {number} + {number}?"} for number in range(10)]

    def get_prompt(self) -> Blocks:
        return [TextBlock(text=str(self.task_spec["question"]))]

    @tool
    async def submit(self, params: Answer) -> ToolOutput:
        """Grades an answer."""
        return _graded(params)

    @tool
    def submit_sync(self, params: Answer) -> ToolOutput:
        """Grades an answer, from plain code."""
        return _graded(params)

    @tool
    async def big(self, params: Size) -> ToolOutput:
        """Gives so many kilobytes of text."""
        text = LINE * (params.kilobytes * 1024 // len(LINE) + 1)
        return ToolOutput(blocks=[TextBlock(text=text[: params.kilobytes * 1024])])

    @tool
    async def slow(self) -> ToolOutput:
        """Takes two seconds and does nothing."""
        await asyncio.sleep(SLOW_SECONDS)
        return ToolOutput(blocks=[TextBlock(text="slept")])
