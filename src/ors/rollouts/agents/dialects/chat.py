"""OpenAI Chat Completions, which vLLM, SGLang, llama.cpp, Ollama and OpenRouter also speak."""

from dataclasses import replace
from typing import Any

from ors._json import dumps
from ors.client import ToolInvocation
from ors.rollouts.agents.dialects.base import (
    JSON,
    Dialect,
    ModelRequest,
    Native,
    at,
    bearer,
    entries,
    give_ids,
    given,
    invocation,
    openai_usage,
    stop_of,
    text,
)
from ors.rollouts.episodes.messages import AgentMessage, StopReason

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


def _body(request: ModelRequest) -> JSON:
    options = request.options
    # OpenAI's newer models refuse `max_tokens`; some other servers know only that.
    limit = "max_completion_tokens" if request.official else "max_tokens"
    return _shared_body(request) | given(
        **{limit: options.max_tokens}, reasoning_effort=options.reasoning_effort
    )


def _openrouter_body(request: ModelRequest) -> JSON:
    options = request.options
    effort = {"effort": options.reasoning_effort} if options.reasoning_effort else None
    return _shared_body(request) | given(max_tokens=options.max_tokens, reasoning=effort)


def _shared_body(request: ModelRequest) -> JSON:
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


def _reply(answer: Any) -> AgentMessage:
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
    calls = tuple(invocation(call, "openai-chat", cut=call is cut) for call in listed)
    return AgentMessage(
        text=_text(message) or refused,
        calls=calls,
        reasoning=text(message, "reasoning_content") or text(message, "reasoning") or None,
        stop=stop,
        usage=openai_usage(at(answer, "usage"), "prompt", "completion"),
        native=Native("openai-chat", [_native(message, listed, calls)]),
    )


def _openrouter_reply(answer: Any) -> AgentMessage:
    reply = _reply(answer)
    cost = at(answer, "usage", "cost")
    known = float(cost) if isinstance(cost, int | float) else None
    native = Native("openrouter", reply.native.messages)
    return replace(reply, usage=replace(reply.usage, cost=known), native=native)


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


def _path(model: str) -> str:
    return "/chat/completions"


CHAT = Dialect(
    "openai-chat",
    "https://api.openai.com/v1",
    "OPENAI_BASE_URL",
    ("OPENAI_API_KEY",),
    bearer,
    _path,
    _body,
    _reply,
)
OPENROUTER = Dialect(
    "openrouter",
    "https://openrouter.ai/api/v1",
    "OPENROUTER_BASE_URL",
    ("OPENROUTER_API_KEY",),
    bearer,
    _path,
    _openrouter_body,
    _openrouter_reply,
)
