"""What clients and logs are told of an exception."""

import traceback
from collections.abc import Iterable
from typing import Literal

from pydantic import ValidationError

from ors._problems import problems

ReturnErrors = Literal["none", "exception", "stacktrace"]

_SHORTEST_SECRET = 4


class Wording:
    """Puts exceptions into words, by the server's `return_errors`: nothing, the message, or the traceback."""

    def __init__(self, return_errors: ReturnErrors) -> None:
        if return_errors not in ("none", "exception", "stacktrace"):
            raise ValueError(f"return_errors is 'none', 'exception' or 'stacktrace', not {return_errors!r}")
        self._how = return_errors

    def told(self, what: str, error: BaseException, secrets: Iterable[str] = ()) -> str:
        """`what` failed, with as much of `error` as a client may see."""
        if self._how == "none":
            return what
        text = message(error) if self._how == "exception" else trace(error)
        return f"{what}: {hidden(text, secrets)}"


def message(error: BaseException) -> str:
    """An exception in one phrase."""
    try:
        text = problems(error) if isinstance(error, ValidationError) else str(error)
    except Exception:  # an author's __str__ may fail too
        text = ""
    if isinstance(error, KeyError) or not text:
        return f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text


def trace(error: BaseException) -> str:
    """An exception with its traceback."""
    try:
        return "".join(traceback.format_exception(error)).rstrip()
    except Exception:
        return type(error).__name__


def hidden(text: str, secrets: Iterable[str]) -> str:
    """`text` without the values of `secrets`."""
    # The longest first, or a part of it would stay; and as it looks when it is printed in quotes.
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:  # hiding every "a" would hide the text and protect nothing
            text = text.replace(secret, "***").replace(repr(secret)[1:-1], "***")
    return text
