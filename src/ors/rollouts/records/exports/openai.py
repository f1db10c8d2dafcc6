"""Episodes as OpenAI Chat Completions messages, for supervised fine-tuning."""

from collections.abc import Iterable, Iterator
from typing import Any

from ors._json import dumps
from ors.client import ToolInvocation, convert_tools
from ors.rollouts.messages import SystemMessage, UserMessage
from ors.rollouts.record import EpisodeRecord
from ors.rollouts.records.exports.turns import Turn, turns
from ors.types import Block, ImageBlock, TextBlock

NOT_RUN = "Not run: the episode had ended."
IMAGES_FOLLOW = "The images of the results:"


def openai_example(record: EpisodeRecord) -> dict[str, Any]:
    """The messages and tools of an episode. Images are data URLs; reasoning is left out.

    Raises:
        ValueError: a tool cannot be expressed in this format.
    """
    messages = [message for part in turns(record.messages) for message in _messages(part)]
    tools = {"tools": convert_tools(record.tools, "openai-chat")} if record.tools else {}
    return {"messages": messages, **tools}


def _messages(part: SystemMessage | UserMessage | Turn) -> Iterator[dict[str, Any]]:
    if isinstance(part, SystemMessage):
        yield {"role": "system", "content": part.text}
    elif isinstance(part, UserMessage):
        yield {"role": "user", "content": _content(part.blocks)}
    else:
        yield from _turn(part)


def _turn(turn: Turn) -> Iterator[dict[str, Any]]:
    calls = {"tool_calls": [_call(id, call) for id, call in turn.calls.items()]} if turn.calls else {}
    if turn.calls or turn.reply.text:
        yield {"role": "assistant", "content": turn.reply.text or None, **calls}
    # The result of a terminal tool belongs to no call, and comes after the last reply.
    answers = [(id, result.blocks) for id, result in turn.results if id is not None]
    for id, blocks in answers:
        yield {"role": "tool", "tool_call_id": id, "content": _text(blocks)}
    for id in turn.unanswered:
        yield {"role": "tool", "tool_call_id": id, "content": NOT_RUN}
    # Results take text only in this format.
    images = [block for _, blocks in answers for block in blocks if isinstance(block, ImageBlock)]
    if images:
        yield {"role": "user", "content": _content([TextBlock(text=IMAGES_FOLLOW), *images])}


def _call(id: str, call: ToolInvocation) -> dict[str, Any]:
    arguments = dumps(call.input).decode()
    return {"id": id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _text(blocks: Iterable[Block]) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))


def _content(blocks: Iterable[Block]) -> str | list[dict[str, Any]]:
    blocks = list(blocks)
    if not any(isinstance(block, ImageBlock) for block in blocks):
        return _text(blocks)
    return [_part(block) for block in blocks]


def _part(block: Block) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    return {"type": "image_url", "image_url": {"url": f"data:{block.mimeType};base64,{block.data}"}}
