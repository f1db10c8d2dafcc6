"""Errors in the answers of model providers."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from ors._json import loads
from ors.client import status_errors
from ors.rollouts.agent import ContextExceeded, ModelError
from ors.rollouts.agents.dialects.base import at, entries

_MAX_TEXT = 300
# OpenAI, vLLM, SGLang, llama.cpp, OpenRouter, Anthropic and Google, in their own words.
_CONTEXT = re.compile(
    r"context_length_exceeded|exceed_context_size|request_too_large|prompt is too long"
    r"|(maximum|model's|exceed\w*( the)?( available| model's)?) context (length|window|size|limit)"
    r"|exceeds? the context window|longer than the (maximum )?model|input token count.{0,40}exceeds",
    re.IGNORECASE | re.DOTALL,
)


def repeatable(status: int, body: bytes) -> bool:
    """Whether the same request may succeed later."""
    if status == 429 and b"insufficient_quota" in body:
        return False
    return status in (408, 409, 429) or status >= 500


def failure(status: int, body: bytes, where: str, masked: Callable[[str], str]) -> ModelError:
    """The error for an answer with this status. `masked` hides the key in a text."""
    if status == 401:
        # Without the provider's text, which may repeat a part of the key.
        return ModelError(f"{where} refused the API key (401)", status=status)
    text = masked(_message(body))  # before it is shortened, which could cut a key in two
    too_long = status in (400, 413, 422) and _CONTEXT.search(_codes(body) + text)
    hint = "; check base_url and the name of the model" if status == 404 or status < 400 else ""
    message = f"{where} answered {status}: {shortened(text) or 'without a text'}{hint}"
    return (ContextExceeded if too_long else ModelError)(message, status=status)


def status_inside(answer: Any) -> int | None:
    """The status of an error that came with status 200, as OpenRouter and failed Responses send it."""
    if not at(answer, "error") or at(answer, "choices"):
        return None
    code = at(answer, "error", "code")
    return code if isinstance(code, int) and 400 <= code < 600 else 500


def retry_after(headers: Mapping[str, str], body: bytes) -> float | None:
    """The pause in seconds that the provider asks for, by a header or in the body, as Google does."""
    found = re.search(rb'"retryDelay":\s*"(\d+(?:\.\d+)?)s"', body)
    return float(found[1]) if found and not headers.get("Retry-After") else status_errors.retry_after(headers)


def shortened(text: str) -> str:
    """A text in one line of at most 300 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 1] + "…"


def _message(body: bytes) -> str:
    found = _parsed(body)
    places = (("error", "message"), ("error",), ("message",), ("detail",))
    texts = (at(found, *place) for place in places)
    return next((text for text in texts if isinstance(text, str)), body.decode(errors="replace"))


def _codes(body: bytes) -> str:
    found = _parsed(body)
    return " ".join(str(at(found, "error", key)) for key in ("code", "type")) + " "


def _parsed(body: bytes) -> Any:
    try:
        found = loads(body)
    except ValueError:
        return None
    return next(iter(entries(found)), None) if isinstance(found, list) else found  # Google's may be a list
