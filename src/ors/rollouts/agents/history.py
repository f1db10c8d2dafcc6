"""A conversation in the format of a model provider."""

from collections.abc import Sequence
from itertools import groupby

from ors.client import Provider, ToolInvocation, convert_prompt, convert_reply, convert_results
from ors.errors import ToolCallError
from ors.rollouts.agents.dialects.base import JSON, Native
from ors.rollouts.episodes.messages import AgentMessage, Message, SystemMessage, ToolMessage, UserMessage
from ors.types import Block, Blocks, ImageBlock, TextBlock, ToolOutput


def system_text(messages: Sequence[Message]) -> str:
    return "\n\n".join(message.text for message in messages if isinstance(message, SystemMessage))


def provider_messages(messages: Sequence[Message], format: Provider, *, images: bool) -> list[JSON]:
    """All messages but those of the system; without `images`, they are named in text."""
    made: list[JSON] = []
    for kind, group in groupby(messages, type):
        if kind is ToolMessage:  # the results of one reply belong together
            made += convert_results([_result(each, images) for each in group], format)  # type: ignore[arg-type]
            continue
        for each in group:
            if isinstance(each, UserMessage):
                made += convert_prompt(_shown(each.blocks, images), format)
            elif isinstance(each, AgentMessage):
                made += _replied(each, format)
    return made


def _replied(message: AgentMessage, format: Provider) -> list[JSON]:
    native = message.native
    if isinstance(native, Native) and native.format == format:
        return native.messages
    return convert_reply(message.text, message.calls, format)


def _result(message: ToolMessage, images: bool) -> tuple[ToolInvocation, ToolOutput | ToolCallError]:
    call = ToolInvocation(message.name, {}, message.call)
    blocks = _shown(message.blocks, images)
    if message.ok:
        return call, ToolOutput(blocks=blocks)
    return call, ToolCallError("\n".join(block.text for block in blocks if isinstance(block, TextBlock)))


def _shown(blocks: Blocks, images: bool) -> Blocks:
    return blocks if images else [_named(block) for block in blocks]


def _named(block: Block) -> Block:
    if not isinstance(block, ImageBlock):
        return block
    size = len(block.data) * 3 // 4
    return TextBlock(text=f"[an image of type {block.mimeType}, {size} bytes, which you cannot see]")
