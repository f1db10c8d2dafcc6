"""Anthropic Messages."""

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
    give_ids,
    given,
    invocation,
    stop_of,
    text,
)
from ors.rollouts.episodes.messages import AgentMessage, StopReason, Usage

MAX_TOKENS = 16_384
_STOPS: dict[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "pause_turn": "pause",
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
    return tuple(invocation(use, "anthropic", cut=cut and use is content[-1]) for use in uses)


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
