"""The three standard streams of this process, which may have been closed by whoever started it."""

import os
import sys

__all__ = ["open_streams"]

MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


def open_streams() -> None:
    """Opens the streams that are closed (`2>&-`), on the null device.

    Otherwise a socket or file that is opened next has the number of one, and gets what is printed.
    """
    for number, (name, mode) in enumerate(MODES.items()):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it has the lowest free number
        if getattr(sys, name) is None:
            stream = open(number, mode, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
