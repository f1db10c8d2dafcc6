"""An environment that tests the inspector: hostile, large, slow and strangely shaped."""

import threading
from collections import defaultdict
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from ors import Environment, ImageBlock, TextBlock, ToolError, ToolOutput, tool
from ors.types import Blocks, JSONObject

HOSTILE = """<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">"""
# One red pixel.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="


def said(*texts: str, **kwargs: Any) -> ToolOutput:
    return ToolOutput(blocks=[TextBlock(text=text) for text in texts], **kwargs)


class Place(BaseModel):
    """Where something is."""

    x: int
    y: int = 0


class Order(BaseModel):
    """The input of `arrange`."""

    title: str = Field(description="What it is called.", max_length=20)
    mood: Literal["calm", "wild"]
    loud: bool
    count: int = Field(default=3, ge=1, le=9)
    weight: float | None = None
    tags: list[str] = []
    places: list[Place] = Field(default_factory=list)
    extra: dict[str, Any] | None = None


class Stage(Environment):
    """A stage for <b>everything</b> that a page may have to show."""

    gates: ClassVar[dict[str, threading.Event]] = defaultdict(threading.Event)

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"id": f"task-{n}", "big": 2**60 + n, "text": HOSTILE} for n in range(30)]

    def get_prompt(self) -> Blocks:
        return [
            TextBlock(text=f"Act. {HOSTILE}"),
            ImageBlock(data=PIXEL, mimeType="image/png"),
            ImageBlock(data="PHN2Zy8+", mimeType="image/svg+xml"),
        ]

    @tool
    async def step(self, reward: float = 0.5, finished: bool = False) -> ToolOutput:
        """Gives a reward."""
        return said("stepped", reward=reward, finished=finished, metadata={"note": HOSTILE})

    @tool
    async def hostile(self) -> ToolOutput:
        """Returns markup. <script>window.hacked = 3</script>"""
        return said(HOSTILE, "javascript:alert(1)", "{{constructor}}")

    @tool
    async def huge(self, size: int = 2**20) -> ToolOutput:
        """Returns a megabyte."""
        return said("x" * (size - 3) + "end")

    @tool
    async def refuse(self) -> ToolOutput:
        """Says no."""
        raise ToolError(f"no {HOSTILE}", reason="mood")

    @tool
    async def boom(self) -> ToolOutput:
        """Raises."""
        raise RuntimeError(f"broken {HOSTILE}")

    @tool
    def wait(self) -> ToolOutput:
        """Waits for the test's word."""
        self.gates[f"{self.task_spec['id']}.waits"].set()
        assert self.gates[f"{self.task_spec['id']}.go"].wait(30)
        return said("waited")

    @tool
    async def arrange(self, order: Order) -> ToolOutput:
        """Takes an input of many shapes."""
        return said(order.model_dump_json())

    @tool
    async def whole(self, number: int) -> ToolOutput:
        """Says an integer again."""
        return said(str(number))

    @tool
    async def secret(self) -> ToolOutput:
        """Says how long the secret is."""
        return said(f"{len(self.secrets.get('token', ''))} characters")
