"""Standard streams of this process, which its parent may have closed."""

import os
import sys

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
