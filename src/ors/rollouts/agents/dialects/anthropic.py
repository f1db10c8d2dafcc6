"""Anthropic Messages."""

from dataclasses import replace
from typing import Any

from ors.client import ToolInvocation
from ors.rollouts.agents.dialects.base import (
    JSON,
    Dialect,
    ModelRequest,
    Native,
    at,
    count,
    entries,
    given,
    invocation,
    text,
)
from ors.rollouts.episodes.messages import AgentMessage, StopReason, Usage

MAX_TOKENS = 16_384
_STOPS: dict[str, StopReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


def _body(request: ModelRequest) -> JSON:
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


def _reply(answer: Any) -> AgentMessage:
    content = entries(answer, "content")
    if not isinstance(at(answer, "content"), list):
        raise ValueError("it has no content")
    stop = _STOPS.get(text(answer, "stop_reason"), "stop")
    thoughts = [text(block, "thinking") for block in content if block.get("type") == "thinking"]
    return AgentMessage(
        text="".join(text(block, "text") for block in content if block.get("type") == "text"),
        calls=_calls(content, cut=stop == "length"),
        reasoning="\n".join(filter(None, thoughts)) or None,
        stop=stop,
        usage=_usage(at(answer, "usage")),
        # A message without content would be refused.
        native=Native("anthropic", [{"role": "assistant", "content": content}] if content else []),
    )


def _calls(content: list[JSON], *, cut: bool) -> tuple[ToolInvocation, ...]:
    calls = [_call(block) for block in content if block.get("type") == "tool_use"]
    if cut and calls and content[-1].get("type") == "tool_use":
        # The input is valid JSON, but only what was written of it so far.
        calls[-1] = replace(calls[-1], input={}, error="The output was cut off before the end of this call")
    return tuple(calls)


def _call(block: JSON) -> ToolInvocation:
    return invocation(block, "anthropic", name=block.get("name"), id=block.get("id"))


def _usage(usage: Any) -> Usage:
    cached = count(usage, "cache_read_input_tokens")
    return Usage(
        input_tokens=count(usage, "input_tokens") + count(usage, "cache_creation_input_tokens") + cached,
        output_tokens=count(usage, "output_tokens"),
        cached_tokens=cached,
        reasoning_tokens=count(usage, "output_tokens_details", "thinking_tokens"),
    )


ANTHROPIC = Dialect(
    "anthropic",
    "https://api.anthropic.com",
    "ANTHROPIC_BASE_URL",
    ("ANTHROPIC_API_KEY",),
    lambda key: {"x-api-key": key},
    lambda model: "/v1/messages",
    _body,
    _reply,
    unsupported=("seed",),
    # The next version, 2026-10-21, has no temperature and top_p, which older models take.
    fixed_headers={"anthropic-version": "2023-06-01"},
)
