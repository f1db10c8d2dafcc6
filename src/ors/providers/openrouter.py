"""OpenRouter: Chat Completions, with reasoning and costs of its own."""

from dataclasses import replace
from typing import Any

from ors.providers import openai_chat
from ors.providers.base import JSON, ModelRequest, Native
from ors.providers.messages import AgentMessage
from ors.providers.parts import at, given


def _write_body(request: ModelRequest) -> JSON:
    options = request.options
    effort = {"effort": options.reasoning_effort} if options.reasoning_effort else None
    return openai_chat.shared_body(request) | given(max_tokens=options.max_tokens, reasoning=effort)


def _read_answer(answer: Any) -> AgentMessage:
    reply = openai_chat.read_answer(answer)
    cost = at(answer, "usage", "cost")
    known = float(cost) if isinstance(cost, int | float) else None
    native = Native("openrouter", reply.native.messages)
    return replace(reply, usage=replace(reply.usage, cost=known), native=native)


API = replace(
    openai_chat.API,
    base_url="https://openrouter.ai/api/v1",
    url_variable="OPENROUTER_BASE_URL",
    key_variables=("OPENROUTER_API_KEY",),
    write_body=_write_body,
    read_answer=_read_answer,
)
