"""An environment with all that a command may meet: kinds of parameters, pictures, refusals, secrets."""

import base64
from typing import Literal

from ors import Blocks, Environment, ImageBlock, JSONObject, TextBlock, ToolError, ToolOutput, tool

PICTURE = base64.b64encode(b"not really a picture").decode()


class Park(Environment):
    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train", "odd"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        if split == "odd":
            return [{f"key{n}": n for n in range(9)}, {"text": "\x1b[31mred"}]
        return [{"n": n, "text": "long " * 100} for n in range(50)]

    def get_prompt(self) -> Blocks:
        text = f"Task {self.task_spec.get('n')}, \x1b[31mand {sorted(self.secrets)}"
        return [TextBlock(text=text), ImageBlock(data=PICTURE, mimeType="image/png")]

    @tool
    def echo(
        self,
        text: str,
        count: int = 1,
        share: float = 0.5,
        loud: bool = False,
        colour: Literal["red", "blue"] = "red",
        tags: list[str] | None = None,
        where: dict[str, int] = {},  # noqa: B006
        either: int | str = 0,
    ) -> ToolOutput:
        """Say everything back."""
        given = [text, count, share, loud, colour, tags, where, either]
        return ToolOutput(blocks=[TextBlock(text=repr(given))], metadata={"key": "value"}, reward=0.25)

    @tool
    def picture(self) -> ToolOutput:
        """Show a picture."""
        return ToolOutput(blocks=[ImageBlock(data=PICTURE, mimeType="image/png")])

    @tool
    def refuse(self) -> ToolOutput:
        """Say no."""
        raise ToolError("not today")

    @tool
    def fail(self) -> ToolOutput:
        """Raise."""
        raise RuntimeError("it broke")

    @tool
    def submit(self, answer: int) -> ToolOutput:
        """End the episode."""
        return ToolOutput(blocks=[TextBlock(text=str(answer == 3))], reward=float(answer == 3), finished=True)

    @tool(shared=False)
    def special(self) -> ToolOutput:
        """Only in a task."""
        return ToolOutput(blocks=[TextBlock(text="special")])


class Other(Park):
    """Another one, so that there are two."""
