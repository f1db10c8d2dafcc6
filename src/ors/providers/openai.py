"""OpenAI: the Responses API."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, assert_never

from ors.providers import openai_chat
from ors.providers.base import JSON, CallResult, Messages, ModelRequest, Native, RawCall
from ors.providers.messages import AgentMessage, StopReason, ToolInvocation
from ors.providers.parts import (
    at,
    completed,
    data_url,
    entries,
    function_of,
    give_ids,
    given,
    id_of,
    invocation,
    openai_usage,
    stop_of,
    text,
    typed_call,
)
from ors.schemas.structure import Schema
from ors.types import Block, Blocks, ImageBlock, TextBlock, text_and_images

_STOPS: dict[str, StopReason] = {
    "completed": "stop",
    "incomplete: max_output_tokens": "length",
    "incomplete: content_filter": "refusal",
}


def _write_tool(named: Schema, schema: Schema) -> Schema:
    # Without `strict`, the Responses API would require every optional field
    # (developers.openai.com/api/docs/guides/function-calling, "Strict mode").
    return {"type": "function", **named, "parameters": completed(schema), "strict": False}


def _read_call(call: Any) -> RawCall | None:
    return typed_call(call, "function_call", arguments="arguments", id="call_id")


def _part(block: Block) -> JSON:
    match block:
        case TextBlock():
            return {"type": "input_text", "text": block.text}
        case ImageBlock():
            return {"type": "input_image", "image_url": data_url(block), "detail": "auto"}
        case _:
            assert_never(block)


def _write_prompt(blocks: Blocks) -> Messages:
    return [{"type": "message", "role": "user", "content": [_part(block) for block in blocks]}]


def _write_reply(text: str, calls: Sequence[ToolInvocation]) -> Messages:
    said = [{"type": "message", "role": "assistant", "content": text}] if text else []
    return said + [{"type": "function_call", "call_id": id_of(call), **function_of(call)} for call in calls]


def _write_results(results: Sequence[CallResult]) -> Messages:
    return [
        {"type": "function_call_output", "call_id": id_of(each.call), "output": _output(each.blocks)}
        for each in results
    ]


def _output(blocks: Blocks) -> str | list[JSON]:
    text, images = text_and_images(blocks)
    return [_part(block) for block in blocks] if images else text


def _write_body(request: ModelRequest) -> JSON:
    options = request.options
    effort = {"effort": options.reasoning_effort} if options.reasoning_effort else None
    return given(
        model=request.model,
        input=request.messages,
        instructions=request.system or None,
        tools=request.tools or None,
        temperature=options.temperature,
        top_p=options.top_p,
        max_output_tokens=options.max_tokens,
        reasoning=effort,
        # Nothing is stored there, so reasoning travels with the conversation, encrypted.
        store=False,
        include=["reasoning.encrypted_content"],
    )


def _read_answer(answer: Any) -> AgentMessage:
    output = entries(answer, "output")
    if not isinstance(at(answer, "output"), list):
        raise ValueError("it has no output")
    said = [part for item in output if item.get("type") == "message" for part in entries(item, "content")]
    refused = "".join(text(part, "refusal") for part in said)
    stop = "refusal" if refused else stop_of(_reason(answer), _STOPS)
    made = [item for item in output if item.get("type") == "function_call"]
    give_ids(made, "call_id")
    cut = [item for item in made if item.get("status") not in ("completed", None)]
    cut += output[-1:] if stop == "length" else []
    return AgentMessage(
        text="".join(text(part, "text") for part in said) or refused,
        calls=tuple(invocation(_read_call(call), cut=call in cut) for call in made),
        reasoning=_reasoning(output),
        stop=stop,
        usage=openai_usage(at(answer, "usage"), "input", "output"),
        native=Native("openai", output),
    )


def _reason(answer: JSON) -> Any:
    why = text(answer, "incomplete_details", "reason")
    status = answer.get("status", "incomplete" if why else "completed")  # other servers may leave it out
    return f"{status}: {why}" if why else status


def _reasoning(output: list[JSON]) -> str | None:
    thoughts = [item for item in output if item.get("type") == "reasoning"]
    parts = [part for item in thoughts for key in ("summary", "content") for part in entries(item, key)]
    return "\n".join(filter(None, (text(part, "text") for part in parts))) or None


API = replace(
    openai_chat.API,
    write_tool=_write_tool,
    read_call=_read_call,
    write_prompt=_write_prompt,
    write_reply=_write_reply,
    write_results=_write_results,
    path=lambda model: "/responses",
    write_body=_write_body,
    read_answer=_read_answer,
    unsupported=("seed", "stop"),
    too_long="exceeds? the context window",
)
