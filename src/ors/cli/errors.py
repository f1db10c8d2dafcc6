"""Errors of commands, each one line and an exit code; and the standard streams of this process."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import UnsupportedOperation
from pathlib import Path
from typing import TextIO

import click

from ors.errors import (
    AuthenticationError,
    BadRequest,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    ORSError,
    StartupFailed,
    TooLarge,
    TransportError,
)

INTERRUPTED = 130
LONGEST_LINE = 500


class CommandError(click.ClickException):
    """A server or an environment has a fault."""

    exit_code = 1


class WrongUsage(click.ClickException):
    exit_code = 2


class Unreachable(click.ClickException):
    """A server cannot be reached, or a TARGET cannot be served."""

    exit_code = 3


@contextmanager
def wrong_usage(*kinds: type[Exception]) -> Iterator[None]:
    try:
        yield
    except kinds as error:
        raise WrongUsage(clean(str(error))) from None


_USED_WRONGLY = (AuthenticationError, BadRequest, Forbidden, MethodNotAllowed, NotFound, TooLarge)


@contextmanager
def in_one_line() -> Iterator[None]:
    """Turns every error into one line and an exit code; users see no stack trace."""
    try:
        yield
    except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        with suppress(OSError):  # the terminal may be closed
            click.echo("Interrupted.", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except ORSError as error:
        raise _translated(error) from error
    except OSError as error:
        text = f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
        raise CommandError(text) from error
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{shown_path(frame.filename)}:{frame.lineno}"
        raise CommandError(f"This is a bug in ors: {one_line(error)} ({where})") from error


def _translated(error: ORSError) -> click.ClickException:
    text = clean(str(error)) or type(error).__name__
    if isinstance(error, AuthenticationError):
        text += " (give a key with --api-key or in ORS_API_KEY)"
    if isinstance(error, TransportError | StartupFailed):
        return Unreachable(text)
    return WrongUsage(text) if isinstance(error, _USED_WRONGLY) else CommandError(text)


def clean(text: str) -> str:
    """Escapes control characters, which could change the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def one_line(error: BaseException) -> str:
    """Type and text of an exception in one line, shortened if needed."""
    text = " ".join((error.msg if isinstance(error, SyntaxError) else str(error)).split())
    if len(text) > LONGEST_LINE:
        text = text[: LONGEST_LINE - 1] + "…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def shown_path(path: str | Path) -> str:
    """Path as a user would write it: relative to the current folder if it is inside."""
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


_REPORT = "ors.report"
MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


def open_streams() -> None:
    """Opens closed standard streams (`2>&-`) on the null device.

    Otherwise the next socket or file gets the descriptor of a standard stream, and printed text goes there.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) < len(MODES):  # it is the lowest free one
        os.set_inheritable(number, True)
    os.close(number)
    for number, (name, mode) in enumerate(MODES.items()):
        if getattr(sys, name) is None:
            stream = open(number, mode, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def keep_report_apart() -> None:
    """With `--json`, keeps standard output for the command: what environments print goes to stderr."""
    context = click.get_current_context(silent=True)
    if context is not None and context.params.get("as_json") and _REPORT not in context.meta:
        context.meta[_REPORT] = context.with_resource(_standard_output_apart())


def report_stream() -> TextIO | None:
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_REPORT)


@contextmanager
def _standard_output_apart() -> Iterator[TextIO]:
    before = sys.stdout
    before.flush()
    try:
        # By descriptor too, for libraries and programs that environments start.
        own = open(os.dup(before.fileno()), "w", encoding="utf-8")  # noqa: SIM115
    except UnsupportedOperation:  # a buffer, as in tests
        own = None
    if own is not None:
        os.dup2(sys.stderr.fileno(), before.fileno())
    sys.stdout = sys.stderr
    try:
        yield own or before
    finally:
        sys.stdout = before
        if own is not None:
            os.dup2(own.fileno(), before.fileno())
            with suppress(BrokenPipeError):  # already told to the writer
                own.close()
