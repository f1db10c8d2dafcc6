"""Describes exceptions to clients and logs."""

import traceback
from collections.abc import Iterable
from typing import Literal

from pydantic import ValidationError

from ors._validation import problems
from ors.server.episodes.masking import hidden

ReturnErrors = Literal["none", "exception", "stacktrace"]

_LONGEST_CHAIN = 20

_OFF_THE_MAIN_THREAD = "signal only works in main thread"
SIGNALS = (
    "signals need the main thread, and a plain `def` runs in another: make the method `async def`, which "
    "`ors serve` runs in the main one, or switch off the timeout that uses a signal"
)
"""A hint for `signal.alarm` in a tool, which graders such as math-verify use."""


class ErrorText:
    """Describes exceptions according to `return_errors`: nothing, the message, or the traceback."""

    def __init__(self, return_errors: ReturnErrors) -> None:
        if return_errors not in ("none", "exception", "stacktrace"):
            raise ValueError(f"return_errors is 'none', 'exception' or 'stacktrace', not {return_errors!r}")
        self._how = return_errors

    def told(self, what: str, error: BaseException, secrets: Iterable[str] = ()) -> str:
        """`what`, with as much of `error` as a client may see."""
        if self._how == "none":
            return what
        text = message(error) if self._how == "exception" else trace(error)
        return f"{what}: {hidden(text, secrets)}"


def message(error: BaseException) -> str:
    """An exception in one phrase, with a hint if there is one."""
    try:
        text = f"{error.title}: {problems(error)}" if isinstance(error, ValidationError) else str(error)
    except Exception:  # an author's __str__ may fail too
        text = ""
    if isinstance(error, KeyError) or not text:
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{text} [{SIGNALS}]" if _wants_signals(error) else text


def trace(error: BaseException) -> str:
    """An exception with its traceback, and a hint if there is one."""
    try:
        text = "".join(traceback.format_exception(error)).rstrip()
    except Exception:
        return type(error).__name__
    return f"{text}\n[{SIGNALS}]" if _wants_signals(error) else text


def _wants_signals(error: BaseException | None) -> bool:
    """Whether a signal handler set in a thread caused it, however deep in the chain."""
    for _ in range(_LONGEST_CHAIN):
        if error is None:
            return False
        if isinstance(error, ValueError) and error.args and _OFF_THE_MAIN_THREAD in str(error.args[0]):
            return True
        error = error.__cause__ or error.__context__
    return False
