"""Standard streams of this process, which its parent may have closed, and environments may print to."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import UnsupportedOperation
from typing import TextIO

import click

_REPORT = "ors.report"
MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


def open_streams() -> None:
    """Opens closed standard streams (`2>&-`) on the null device.

    Otherwise the next socket or file gets the descriptor of a standard stream, and printed text goes there.
    """
    for number, (name, mode) in enumerate(MODES.items()):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest free number
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
