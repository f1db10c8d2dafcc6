"""Anthropic: the Messages API."""

import re
from collections.abc import Sequence
from typing import Any

from ors.client.formats.base import (
    NO_BLOCKS,
    CallResult,
    Format,
    Messages,
    RawCall,
    ToolInvocation,
    id_of,
    typed_call,
)
from ors.client.formats.schemas import completed
from ors.schemas.structure import Schema
from ors.types import Block, Blocks, TextBlock

_PROPERTY_NAMES = "[a-zA-Z0-9_.-]{1,64}"


def _spec(named: Schema, schema: Schema) -> Schema:
    if wrong := [name for name in schema.get("properties", ()) if not re.fullmatch(_PROPERTY_NAMES, name)]:
        # The API would refuse the whole request, with this message.
        raise ValueError(f"property keys should match pattern '^{_PROPERTY_NAMES}$', not {', '.join(wrong)}")
    return {"type": "custom", **named, "input_schema": completed(schema)}


def _call(call: Any) -> RawCall | None:
    return typed_call(call, "tool_use", arguments="input", id="id")


def _content(blocks: Blocks) -> list[dict[str, Any]]:
    # "text content blocks must contain non-whitespace text"
    return [_part(block) for block in blocks if not isinstance(block, TextBlock) or block.text.strip()]


def _part(block: Block) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    source = {"type": "base64", "media_type": block.mimeType, "data": block.data}
    return {"type": "image", "source": source}


def _prompt(blocks: Blocks) -> Messages:
    return [{"role": "user", "content": _content(blocks) or _content(NO_BLOCKS)}]


def _reply(text: str, calls: Sequence[ToolInvocation]) -> Messages:
    content = _content([TextBlock(text=text)])
    content += [
        {"type": "tool_use", "id": id_of(call), "name": call.name, "input": dict(call.input)}
        for call in calls
    ]
    return [{"role": "assistant", "content": content}] if content else []


def _results(results: Sequence[CallResult]) -> Messages:
    # The results of one reply must all be in the message that follows it.
    return [{"role": "user", "content": [_result(each) for each in results]}] if results else []


def _result(result: CallResult) -> dict[str, Any]:
    content = _content(result.blocks)
    made: dict[str, Any] = {"type": "tool_result", "tool_use_id": id_of(result.call)}
    return made | ({"content": content} if content else {}) | ({} if result.ok else {"is_error": True})


# The rule for names is from the API's error message.
ANTHROPIC = Format("[a-zA-Z0-9_-]{1,128}", _spec, _call, _prompt, _reply, _results)
