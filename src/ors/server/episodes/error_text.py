"""Describes exceptions to clients and logs."""

import os
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Literal, get_args

from pydantic import ValidationError

from ors._json import problems
from ors._masking import hidden

ReturnErrors = Literal["none", "exception", "line", "stacktrace"]

_OURS = Path(__file__).parents[2]
_INSTALLED = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib"))

_OFF_THE_MAIN_THREAD = "signal only works in main thread"
SIGNALS = (
    "signals need the main thread, and a plain `def` runs in another: make the method `async def`, which "
    "`ors serve` runs in the main one, or switch off the timeout that uses a signal"
)
"""A hint for `signal.alarm` in a tool, which graders such as math-verify use."""


class ErrorText:
    """Describes exceptions according to `return_errors`.

    "none" tells nothing, "exception" the message, "stacktrace" the traceback. "line" tells the message and
    the author's last line with its source, and is for programs of this machine alone.
    """

    def __init__(self, return_errors: ReturnErrors) -> None:
        if return_errors not in get_args(ReturnErrors):
            *names, last = (repr(name) for name in get_args(ReturnErrors))
            raise ValueError(f"return_errors is {', '.join(names)} or {last}, not {return_errors!r}")
        self._how = return_errors

    @property
    def is_local(self) -> bool:
        """Whether only programs of this machine may be told."""
        return self._how == "line"

    def told(
        self, what: str, error: BaseException, secrets: Iterable[str] = (), cls: type | None = None
    ) -> str:
        """`what`, with as much of `error` as a client may see; `cls` is the environment whose code raised."""
        if self._how == "none":
            return what
        text = trace(error) if self._how == "stacktrace" else message(error)
        if self._how == "line":
            text += _source(error, cls)
        return f"{what}: {hidden(text, secrets)}"


def message(error: BaseException) -> str:
    """An exception in one phrase, with a hint if there is one."""
    try:
        text = f"{error.title}: {problems(error)}" if isinstance(error, ValidationError) else str(error)
    except Exception:  # an author's __str__ may fail too
        text = ""
    if text.startswith("\n***"):  # nltk prints a page where data is missing
        text = " ".join(text.replace("*", "").split())
    if isinstance(error, KeyError) or not text:
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{text} [{SIGNALS}]" if _OFF_THE_MAIN_THREAD in _traceback(error) else text


def trace(error: BaseException) -> str:
    """An exception with its traceback, and a hint if there is one."""
    text = _traceback(error)
    return f"{text}\n[{SIGNALS}]" if _OFF_THE_MAIN_THREAD in text else text


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error)).rstrip()
    except Exception:  # an author's __str__ may fail
        return type(error).__name__


def author_line(error: BaseException, cls: type) -> str:
    """The last line of the author's code in a traceback, as ` (file.py:12)`; empty if there is none."""
    frame = author_frame(error, cls)
    return "" if frame is None else f" ({frame.filename}:{frame.lineno})"


def _source(error: BaseException, cls: type | None) -> str:
    frame = author_frame(error, cls)
    if frame is None:
        return ""
    file = os.path.relpath(frame.filename)
    file = frame.filename if file.startswith("..") else file
    return f'\n  File "{file}", line {frame.lineno}, in {frame.name}\n    {frame.line}'


def author_frame(error: BaseException, cls: type | None) -> traceback.FrameSummary | None:
    """The last frame of the author's code in a traceback: of the package of `cls`, or not installed."""
    package, found = cls.__module__.partition(".")[0] if cls is not None else "", None
    at = error.__traceback__
    while at is not None:
        if _is_authors(at, package):
            found = at
        at = at.tb_next
    return None if found is None else traceback.extract_tb(found, limit=1)[0]


def _is_authors(at: TracebackType, package: str) -> bool:
    code, module = at.tb_frame.f_code, str(at.tb_frame.f_globals.get("__name__"))
    file = Path(code.co_filename)
    if file.is_relative_to(_OURS):
        return False
    if module.partition(".")[0] == package:
        return True
    return file.is_absolute() and not any(file.is_relative_to(folder) for folder in _INSTALLED)
