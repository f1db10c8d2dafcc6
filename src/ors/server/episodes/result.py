"""How a call ended, with its output cut if it is too long."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from ors._json import dumps
from ors._protocol import error_event
from ors.types import Block, ImageBlock, RunToolError, TextBlock, ToolOutput

COPIED_BYTES = 2**15
"""What is kept is copied up to this size: orjson leaves 4 KB or more reserved behind its bytes."""
MARKER = "\n… [cut: {shown} of {whole} characters are shown]"


@dataclass(slots=True)
class Result:
    """The end of a call, as its client is told it, and what it means."""

    ending: bytes
    """The output or the refusal as JSON, or the `error` event."""
    kind: str = "ok"
    """"ok", "refused" or "failed"."""
    reason: str = ""
    reward: float | None = None
    finished: bool = False
    components: Mapping[str, float] | None = None
    """The named rewards, if there are any."""


def failed(message: str, reason: str) -> Result:
    return Result(error_event(message, reason), "failed", reason)


def refused(error: RunToolError) -> Result:
    """The result of a call that the tool or the server refused."""
    return Result(b"%b" % dumps(error), "refused", error.reason or "tool")


def over(text: str) -> Result:
    """The result of a call of an episode that has finished."""
    return refused(RunToolError(error=text, reason="episode_finished"))


def cut(output: ToolOutput, limit: int) -> bytes:
    """The result of a tool as JSON of at most `limit` bytes, with the longest texts cut."""
    texts = {index: text for index, text in enumerate(map(_text, output.blocks)) if text is not None}
    kept = {index: len(text) for index, text in texts.items()}
    while True:
        result = dumps({"ok": True, "output": _shown(output, texts, kept)})
        if len(result) <= limit:
            return result
        longest = max(kept, key=lambda index: kept[index], default=None)
        if longest is None or kept[longest] == 0:
            raise ValueError(f"the result is over {limit} bytes even without its text")
        # In steps of half of what is over, so that several long texts share the loss.
        bytes_per_character = len(dumps(texts[longest])) / len(texts[longest])
        too_many = int((len(result) - limit) / bytes_per_character)
        kept[longest] = max(0, kept[longest] - max(64, too_many // 2))


def _text(block: Block) -> str | None:
    match block:
        case TextBlock():
            return block.text
        case ImageBlock():
            return None
        case _:
            assert_never(block)


def _shown(output: ToolOutput, texts: dict[int, str], kept: dict[int, int]) -> ToolOutput:
    blocks = list(output.blocks)
    for index, text in texts.items():
        if kept[index] < len(text):
            marker = MARKER.format(shown=kept[index], whole=len(text))
            blocks[index] = blocks[index].model_copy(update={"text": text[: kept[index]] + marker})
    return output.model_copy(update={"blocks": blocks})
