"""OpenAI: the Responses API and Chat Completions."""

from collections.abc import Sequence
from typing import Any

from ors._json import dumps
from ors.client.formats.base import (
    CallResult,
    Format,
    Messages,
    RawCall,
    ToolInvocation,
    data_url,
    field,
    id_of,
    images_of,
    text_of,
    typed_call,
)
from ors.client.formats.schemas import completed
from ors.schemas.structure import Schema
from ors.types import Block, Blocks, TextBlock

_NAMES = "[a-zA-Z0-9_-]{1,64}"  # as openai's FunctionDefinition says


def _responses_spec(named: Schema, schema: Schema) -> Schema:
    # Without `strict`, the Responses API would require every optional field
    # (developers.openai.com/api/docs/guides/function-calling, "Strict mode").
    return {"type": "function", **named, "parameters": completed(schema), "strict": False}


def _responses_call(call: Any) -> RawCall | None:
    return typed_call(call, "function_call", arguments="arguments", id="call_id")


def _responses_part(block: Block) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "input_text", "text": block.text}
    return {"type": "input_image", "image_url": data_url(block), "detail": "auto"}


def _responses_prompt(blocks: Blocks) -> Messages:
    return [{"type": "message", "role": "user", "content": [_responses_part(block) for block in blocks]}]


def _responses_reply(text: str, calls: Sequence[ToolInvocation]) -> Messages:
    said = [{"type": "message", "role": "assistant", "content": text}] if text else []
    return said + [{"type": "function_call", "call_id": id_of(call), **_function(call)} for call in calls]


def _responses_results(results: Sequence[CallResult]) -> Messages:
    return [
        {
            "type": "function_call_output",
            "call_id": id_of(each.call),
            "output": [_responses_part(block) for block in each.blocks]
            if images_of(each.blocks)
            else text_of(each.blocks),
        }
        for each in results
    ]


def _function(call: ToolInvocation) -> dict[str, str]:
    return {"name": call.name, "arguments": dumps(call.input).decode()}


def _chat_spec(named: Schema, schema: Schema) -> Schema:
    return {"type": "function", "function": {**named, "parameters": completed(schema)}}


def _chat_call(call: Any) -> RawCall | None:
    function = field(call, "function")
    return function and (field(function, "name"), field(function, "arguments"), field(call, "id"))


def _chat_content(blocks: Blocks) -> str | list[dict[str, Any]]:
    # A string where there are no images: the chat templates of some models take no parts.
    return [_chat_part(block) for block in blocks] if images_of(blocks) else text_of(blocks)


def _chat_part(block: Block) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    return {"type": "image_url", "image_url": {"url": data_url(block)}}


def _chat_prompt(blocks: Blocks) -> Messages:
    return [{"role": "user", "content": _chat_content(blocks)}]


def _chat_reply(text: str, calls: Sequence[ToolInvocation]) -> Messages:
    made = [{"id": id_of(call), "type": "function", "function": _function(call)} for call in calls]
    message = {"role": "assistant", "content": text}
    return [message | {"content": text or None, "tool_calls": made} if made else message]


def _chat_results(results: Sequence[CallResult]) -> Messages:
    # Tool messages take text only, and nothing may stand between them: images follow in a user message.
    answers: Messages = []
    shown: list[Block] = []
    for each in results:
        text = text_of(each.blocks)
        if images := images_of(each.blocks):
            text = "\n".join(filter(None, [text, "(The images of this result follow in the next message.)"]))
            shown += [TextBlock(text=f"Images of the result of {each.call.name} ({each.call.id}):"), *images]
        answers.append({"role": "tool", "tool_call_id": id_of(each.call), "content": text})
    return answers + (_chat_prompt(shown) if shown else [])


RESPONSES = Format(
    _NAMES, _responses_spec, _responses_call, _responses_prompt, _responses_reply, _responses_results
)
CHAT = Format(_NAMES, _chat_spec, _chat_call, _chat_prompt, _chat_reply, _chat_results)
