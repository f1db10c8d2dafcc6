"""OpenAI Responses."""

from typing import Any

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
    "completed": "stop",
    "incomplete: max_output_tokens": "length",
    "incomplete: content_filter": "refusal",
}


def _body(request: ModelRequest) -> JSON:
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


def _reply(answer: Any) -> AgentMessage:
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
        calls=tuple(invocation(call, "openai", cut=call in cut) for call in made),
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


RESPONSES = Dialect(
    "openai",
    "https://api.openai.com/v1",
    "OPENAI_BASE_URL",
    ("OPENAI_API_KEY",),
    bearer,
    lambda model: "/responses",
    _body,
    _reply,
    unsupported=("seed", "stop"),
)
