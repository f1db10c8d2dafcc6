"""Google generateContent."""

from typing import Any
from urllib.parse import quote

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

# All others are failures, such as OTHER, MALFORMED_FUNCTION_CALL, and none: the model has not stopped then.
_STOPS: dict[str, StopReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT"), "refusal"),
    **dict.fromkeys(("SPII", "MODEL_ARMOR"), "refusal"),
    **dict.fromkeys(("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"), "refusal"),
}


def _path(model: str) -> str:
    return f"/v1beta/models/{quote(model.removeprefix('models/'), safe='')}:generateContent"


def _body(request: ModelRequest) -> JSON:
    options = request.options
    config = given(
        temperature=options.temperature,
        topP=options.top_p,
        maxOutputTokens=options.max_tokens,
        stopSequences=list(options.stop) or None,
        seed=options.seed,
        thinkingConfig=_thinking(options.reasoning_effort),
    )
    return given(
        contents=request.messages,
        systemInstruction={"parts": [{"text": request.system}]} if request.system else None,
        tools=[{"functionDeclarations": request.tools}] if request.tools else None,
        generationConfig=config or None,
    )


def _thinking(effort: str | None) -> JSON | None:
    return None if effort is None else {"thinkingLevel": effort.upper(), "includeThoughts": True}


def _reply(answer: Any) -> AgentMessage:
    candidate = at(answer, "candidates", 0)
    blocked = text(answer, "promptFeedback", "blockReason")
    if candidate is None and not blocked:
        raise ValueError("it has no candidates")
    why = text(candidate, "finishMessage")
    stop = "refusal" if blocked else stop_of(at(candidate, "finishReason"), _STOPS, why)
    parts = entries(candidate, "content", "parts")
    cut = parts[-1] if parts and stop == "length" else None
    calls = [part for part in parts if "functionCall" in part]
    give_ids(call for part in calls if text(call := part["functionCall"], "id"))  # most have none
    said = "".join(text(part, "text") for part in parts if not part.get("thought"))
    thoughts = [text(part, "text") for part in parts if part.get("thought")]
    return AgentMessage(
        text=said or why,
        calls=tuple(invocation(part, "google", cut=part is cut) for part in calls),
        reasoning="\n".join(filter(None, thoughts)) or None,
        stop=stop,
        usage=_usage(at(answer, "usageMetadata")),
        native=Native("google", [{"role": "model", "parts": parts}] if parts else []),
    )


def _usage(usage: Any) -> Usage:
    thoughts = count(usage, "thoughtsTokenCount")
    return Usage(
        input_tokens=count(usage, "promptTokenCount") + count(usage, "toolUsePromptTokenCount"),
        output_tokens=count(usage, "candidatesTokenCount") + thoughts,
        cached_tokens=count(usage, "cachedContentTokenCount"),
        reasoning_tokens=thoughts,
    )


GOOGLE = Dialect(
    "google",
    "https://generativelanguage.googleapis.com",
    "GOOGLE_GEMINI_BASE_URL",
    ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    lambda key: {"x-goog-api-key": key},
    _path,
    _body,
    _reply,
)
