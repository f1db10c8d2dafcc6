"""Errors of model providers: what they mean, and what they tell."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from ors._json import loads
from ors.providers import PROVIDERS, api_of
from ors.providers.parts import at, entries

_MAX_TEXT = 300


class ModelError(Exception):
    """The model provider failed, after all retries. `status` is its HTTP status, if it answered."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.final = status in (401, 403, 404)
        """Whether every other request would fail in the same way."""


class ContextExceeded(ModelError):
    """The conversation is longer than the model's context: the episode is truncated by its tokens."""


@cache
def _too_long() -> re.Pattern[str]:
    words = "|".join(api_of(name).too_long for name in PROVIDERS)
    return re.compile(words, re.IGNORECASE | re.DOTALL)


def repeatable(status: int, body: bytes) -> bool:
    """Whether the same request may succeed later."""
    final = (api_of(name).final_error for name in PROVIDERS)
    if status == 429 and any(re.search(words, body) for words in final if words is not None):
        return False
    return status in (408, 409, 429) or status >= 500


def retry_delay(body: bytes) -> float | None:
    """The pause in seconds that the body of an error asks for."""
    delays = (api_of(name).retry_delay for name in PROVIDERS)
    found = (re.search(delay, body) for delay in delays if delay is not None)
    return next((float(each[1]) for each in found if each), None)


def failure(status: int, body: bytes, where: str, masked: Callable[[str], str]) -> ModelError:
    """The error for an answer with this status. `masked` hides the key in a text."""
    if status == 401:
        # Without the provider's text, which may repeat a part of the key.
        return ModelError(f"{where} refused the API key (401)", status=status)
    text = masked(_message(body))  # before it is shortened, which could cut a key in two
    too_long = status in (400, 413, 422) and _too_long().search(_codes(body) + text)
    hint = "; check base_url and the name of the model" if status == 404 or status < 400 else ""
    message = f"{where} answered {status}: {_shortened(text) or 'without a message'}{hint}"
    return (ContextExceeded if too_long else ModelError)(message, status=status)


def status_inside(answer: Any) -> int | None:
    """The status of an error that came with status 200, as OpenRouter and failed Responses send it."""
    if not at(answer, "error") or at(answer, "choices"):
        return None
    code = at(answer, "error", "code")
    return code if isinstance(code, int) and 400 <= code < 600 else 500


def _shortened(text: str) -> str:
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
