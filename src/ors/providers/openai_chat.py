"""OpenAI: Chat Completions, which vLLM, SGLang, llama.cpp, Ollama and OpenRouter also speak."""

from collections.abc import Sequence
from typing import Any, assert_never

from ors._json import dumps
from ors.providers.base import JSON, CallResult, Messages, ModelAPI, ModelRequest, Native, RawCall
from ors.providers.messages import AgentMessage, StopReason, ToolInvocation
from ors.providers.parts import (
    at,
    completed,
    data_url,
    entries,
    field,
    function_of,
    give_ids,
    given,
    id_of,
    invocation,
    openai_usage,
    stop_of,
    text,
)
from ors.schemas.structure import Schema
from ors.types import Block, Blocks, ImageBlock, TextBlock, text_and_images

_STOPS: dict[str, StopReason] = {
    "stop": "stop",
    "tool_calls": "stop",
    **dict.fromkeys(("end_turn", "eos", "eos_token", "stop_sequence"), "stop"),  # of other servers
    "length": "length",
    "model_length": "length",  # Mistral
    "content_filter": "refusal",
}
# Reasoning as vLLM, SGLang, DeepSeek and OpenRouter send it; all of them take it back.
_SENT_BACK = ("content", "refusal", "tool_calls", "reasoning", "reasoning_content", "reasoning_details")


def _write_tool(named: Schema, schema: Schema) -> Schema:
    return {"type": "function", "function": {**named, "parameters": completed(schema)}}


def _read_call(call: Any) -> RawCall | None:
    function = field(call, "function")
    return function and (field(function, "name"), field(function, "arguments"), field(call, "id"))


def _write_prompt(blocks: Blocks) -> Messages:
    # A string where there are no images: the chat templates of some models take no parts.
    text, images = text_and_images(blocks)
    return [{"role": "user", "content": [_part(block) for block in blocks] if images else text}]


def _part(block: Block) -> JSON:
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text}
        case ImageBlock():
            return {"type": "image_url", "image_url": {"url": data_url(block)}}
        case _:
            assert_never(block)


def _write_reply(text: str, calls: Sequence[ToolInvocation]) -> Messages:
    made = [{"id": id_of(call), "type": "function", "function": function_of(call)} for call in calls]
    message = {"role": "assistant", "content": text}
    return [message | {"content": text or None, "tool_calls": made} if made else message]


def _write_results(results: Sequence[CallResult]) -> Messages:
    # Tool messages take text only, and nothing may stand between them: images follow in a user message.
    answers: Messages = []
    shown: list[Block] = []
    for each in results:
        text, images = text_and_images(each.blocks)
        if images:
            text = "\n".join(filter(None, [text, "(The images of this result follow in the next message.)"]))
            shown += [TextBlock(text=f"Images of the result of {each.call.name} ({each.call.id}):"), *images]
        answers.append({"role": "tool", "tool_call_id": id_of(each.call), "content": text})
    return answers + (_write_prompt(shown) if shown else [])


def _write_body(request: ModelRequest) -> JSON:
    options = request.options
    # OpenAI's newer models refuse `max_tokens`; some other servers know only that.
    limit = "max_completion_tokens" if request.official else "max_tokens"
    return shared_body(request) | given(
        **{limit: options.max_tokens}, reasoning_effort=options.reasoning_effort
    )


def shared_body(request: ModelRequest) -> JSON:
    options = request.options
    system = [{"role": "system", "content": request.system}] if request.system else []
    return given(
        model=request.model,
        messages=system + request.messages,
        tools=request.tools or None,
        temperature=options.temperature,
        top_p=options.top_p,
        seed=options.seed,
        stop=list(options.stop) or None,
    )


def read_answer(answer: Any) -> AgentMessage:
    choice = at(answer, "choices", 0)
    message = at(choice, "message")
    if not isinstance(message, dict):
        raise ValueError("it has no choices[0].message")
    listed = entries(message, "tool_calls")
    give_ids(listed)  # llama.cpp has sent empty ones
    refused = text(message, "refusal")
    reason = choice.get("finish_reason", "stop")  # some servers leave it out
    if reason == "tool_calls" and not listed:
        raise ValueError("the model stopped for a tool call, which is missing")
    stop = "refusal" if refused else stop_of(reason, _STOPS)
    cut = listed[-1] if listed and stop == "length" else None
    calls = tuple(invocation(_read_call(call), cut=call is cut) for call in listed)
    return AgentMessage(
        text=_text(message) or refused,
        calls=calls,
        reasoning=text(message, "reasoning_content") or text(message, "reasoning") or None,
        stop=stop,
        usage=openai_usage(at(answer, "usage"), "prompt", "completion"),
        native=Native("openai-chat", [_native(message, listed, calls)]),
    )


def _text(message: JSON) -> str:
    parts = entries(message, "content")  # some servers send parts
    return text(message, "content") or "".join(text(part, "text") for part in parts)


def _native(message: JSON, listed: list[JSON], calls: tuple[ToolInvocation, ...]) -> JSON:
    kept = {key: message[key] for key in _SENT_BACK if message.get(key) is not None}
    made = {"role": "assistant", "content": None if calls else ""} | kept
    sent = [_readable(call) if read.error else call for call, read in zip(listed, calls, strict=True)]
    return made | ({"tool_calls": sent} if sent else {})


def _readable(call: JSON) -> JSON:
    # vLLM refuses a conversation that has arguments which are not a JSON object.
    function = call["function"]
    quoted = dumps({"not_a_json_object": function.get("arguments")}).decode()
    return call | {"function": function | {"arguments": quoted}}


API = ModelAPI(
    tool_names="[a-zA-Z0-9_-]{1,64}",  # as openai's FunctionDefinition says
    write_tool=_write_tool,
    read_call=_read_call,
    write_prompt=_write_prompt,
    write_reply=_write_reply,
    write_results=_write_results,
    base_url="https://api.openai.com/v1",
    url_variable="OPENAI_BASE_URL",
    key_variables=("OPENAI_API_KEY",),
    key_headers=lambda key: {"Authorization": f"Bearer {key}"},
    path=lambda model: "/chat/completions",
    write_body=_write_body,
    read_answer=read_answer,
    # OpenAI, vLLM, SGLang and llama.cpp, in their own words.
    too_long=(
        "context_length_exceeded|exceed_context_size|longer than the (maximum )?model"
        r"|(maximum|model's|exceed\w*( the)?( available| model's)?) context (length|window|size|limit)"
    ),
    final_error=b"insufficient_quota",
)
