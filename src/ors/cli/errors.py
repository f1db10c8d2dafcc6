"""Errors of commands: each is one line to the user and an exit code."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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
        raise CommandError(
            f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
        ) from error
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{shown_path(place.filename)}:{place.lineno}"
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
