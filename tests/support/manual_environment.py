"""An environment whose prompts are written in Markdown."""

from ors import Environment, ImageBlock, TextBlock, ToolOutput, tool
from ors.types import Blocks, JSONObject
from tests.support.hostile_environment import PIXEL

PROMPT = """# The manual

Read **all** of it, with `care`, and *never* skip: [the rules](https://rules.example/all "All") count.

1. First
   - inner
2. Second

> A word of warning.

```python
def answer():  # not a heading
    return 42
```

| move | cost |
|------|-----:|
| up   | 1    |

---

![a picture](https://elsewhere.example/spy.png) <b>not bold</b> https://bare.example/x.
"""


class Manual(Environment):
    """Reads a manual."""

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"page": n, "text": "word " * 200} for n in range(3)]

    def get_prompt(self) -> Blocks:
        return [TextBlock(text=PROMPT), ImageBlock(data=PIXEL, mimeType="image/png")]

    @tool
    async def answer(self, reward: float = 1.0, lines: int = 80) -> ToolOutput:
        """Ends the episode."""
        text = "\n".join(f"line {n} " + "and more " * 20 for n in range(lines))
        return ToolOutput(
            blocks=[TextBlock(text=text), TextBlock(text="**done**")], reward=reward, finished=True
        )
