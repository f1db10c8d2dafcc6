"""Truncates results that are too long."""

from ors._json import dumps
from ors.types import TextBlock, ToolOutput

MARKER = "\n… [cut: {shown} of {whole} characters are shown]"


def cut(output: ToolOutput, limit: int) -> bytes:
    """The result of a tool as JSON of at most `limit` bytes, with the longest texts cut.

    Raises:
        ValueError: the result is too long even without text.
    """
    texts = {index: block.text for index, block in enumerate(output.blocks) if isinstance(block, TextBlock)}
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


def _shown(output: ToolOutput, texts: dict[int, str], kept: dict[int, int]) -> ToolOutput:
    blocks = list(output.blocks)
    for index, text in texts.items():
        if kept[index] < len(text):
            marker = MARKER.format(shown=kept[index], whole=len(text))
            blocks[index] = blocks[index].model_copy(update={"text": text[: kept[index]] + marker})
    return output.model_copy(update={"blocks": blocks})
