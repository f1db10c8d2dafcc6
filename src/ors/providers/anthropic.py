"""Anthropic: the Messages API."""

import re
from collections.abc import Sequence
from typing import Any, assert_never

from ors.providers.base import JSON, CallResult, Messages, ModelAPI, ModelRequest, Native, RawCall
from ors.providers.messages import AgentMessage, StopReason, ToolInvocation, Usage
from ors.providers.parts import (
    NO_BLOCKS,
    at,
    completed,
    count,
    entries,
    give_ids,
    given,
    id_of,
    invocation,
    stop_of,
    text,
    typed_call,
)
from ors.schemas.structure import Schema
from ors.types import Blocks, ImageBlock, TextBlock

MAX_TOKENS = 16_384
_PROPERTY_NAMES = "[a-zA-Z0-9_.-]{1,64}"
_STOPS: dict[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "pause_turn": "pause",
}


def _write_tool(named: Schema, schema: Schema) -> Schema:
    if wrong := [name for name in schema.get("properties", ()) if not re.fullmatch(_PROPERTY_NAMES, name)]:
        # The API would refuse the whole request, with this message.
        raise ValueError(f"property keys should match pattern '^{_PROPERTY_NAMES}$', not {', '.join(wrong)}")
    return {"type": "custom", **named, "input_schema": completed(schema)}


def _read_call(call: Any) -> RawCall | None:
    return typed_call(call, "tool_use", arguments="input", id="id")


def _content(blocks: Blocks) -> list[JSON]:
    parts: list[JSON] = []
    for block in blocks:
        match block:
            case TextBlock():
                if block.text.strip():  # "text content blocks must contain non-whitespace text"
                    parts.append({"type": "text", "text": block.text})
            case ImageBlock():
                source = {"type": "base64", "media_type": block.mimeType, "data": block.data}
                parts.append({"type": "image", "source": source})
            case _:
                assert_never(block)
    return parts


def _write_prompt(blocks: Blocks) -> Messages:
    return [{"role": "user", "content": _content(blocks) or _content(NO_BLOCKS)}]


def _write_reply(text: str, calls: Sequence[ToolInvocation]) -> Messages:
    content = _content([TextBlock(text=text)])
    content += [
        {"type": "tool_use", "id": id_of(call), "name": call.name, "input": dict(call.input)}
        for call in calls
    ]
    return [{"role": "assistant", "content": content}] if content else []


def _write_results(results: Sequence[CallResult]) -> Messages:
    # The results of one reply must all be in the message that follows it.
    return [{"role": "user", "content": [_result(each) for each in results]}] if results else []


def _result(result: CallResult) -> JSON:
    content = _content(result.blocks)
    made: JSON = {"type": "tool_result", "tool_use_id": id_of(result.call)}
    return made | ({"content": content} if content else {}) | ({} if result.ok else {"is_error": True})


def _write_body(request: ModelRequest) -> JSON:
    options = request.options
    return given(
        model=request.model,
        max_tokens=options.max_tokens or MAX_TOKENS,
        system=request.system or None,
        messages=request.messages,
        tools=request.tools or None,
        temperature=options.temperature,
        top_p=options.top_p,
        stop_sequences=list(options.stop) or None,
        **_thinking(options.reasoning_effort),
    )


def _thinking(effort: str | None) -> JSON:
    if effort is None:
        return {}
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    return {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}


def _read_answer(answer: Any) -> AgentMessage:
    content = entries(answer, "content")
    if not isinstance(at(answer, "content"), list):
        raise ValueError("it has no content")
    stop = stop_of(answer.get("stop_reason", "end_turn"), _STOPS)  # other servers may leave it out
    calls = _calls(content, cut=stop == "length")
    if (stop == "pause" and not content) or (answer.get("stop_reason") == "tool_use" and not calls):
        raise ValueError("the model stopped for a tool call or a pause, which is missing")
    thoughts = [text(block, "thinking") for block in content if block.get("type") == "thinking"]
    return AgentMessage(
        text="".join(text(block, "text") for block in content if block.get("type") == "text"),
        calls=calls,
        reasoning="\n".join(filter(None, thoughts)) or None,
        stop=stop,
        usage=_usage(at(answer, "usage")),
        # A message without content would be refused.
        native=Native("anthropic", [{"role": "assistant", "content": content}] if content else []),
    )


def _calls(content: list[JSON], *, cut: bool) -> tuple[ToolInvocation, ...]:
    uses = [block for block in content if block.get("type") == "tool_use"]
    give_ids(uses)
    return tuple(invocation(_read_call(use), cut=cut and use is content[-1]) for use in uses)


def _usage(usage: Any) -> Usage:
    cached = count(usage, "cache_read_input_tokens")
    return Usage(
        input_tokens=count(usage, "input_tokens") + count(usage, "cache_creation_input_tokens") + cached,
        output_tokens=count(usage, "output_tokens"),
        cached_tokens=cached,
        reasoning_tokens=count(usage, "output_tokens_details", "thinking_tokens"),
    )


API = ModelAPI(
    tool_names="[a-zA-Z0-9_-]{1,128}",  # from the API's error message
    write_tool=_write_tool,
    read_call=_read_call,
    write_prompt=_write_prompt,
    write_reply=_write_reply,
    write_results=_write_results,
    base_url="https://api.anthropic.com",
    url_variable="ANTHROPIC_BASE_URL",
    key_variables=("ANTHROPIC_API_KEY",),
    key_headers=lambda key: {"x-api-key": key},
    path=lambda model: "/v1/messages",
    write_body=_write_body,
    read_answer=_read_answer,
    unsupported=("seed",),
    # The next version, 2026-10-21, has no temperature and top_p, which older models take.
    fixed_headers={"anthropic-version": "2023-06-01"},
    too_long="request_too_large|prompt is too long|exceed context limit",
)
