"""Ends this process when the one that started it dies."""

import os
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

LIFELINE = "ORS_SERVE_LIFELINE"
"""Environment variable with the descriptor of a pipe whose other end the parent of `ors serve` holds."""


@contextmanager
def tied() -> Iterator[int]:
    """A descriptor for child processes, which end with this process or at the end of the block."""
    theirs, ours = os.pipe()
    try:
        yield theirs
    finally:
        os.close(ours)
        os.close(theirs)


class Lifeline:
    """Ends this process when the other end of a pipe or socket closes, as it does when its owner dies.

    A thread watches it, not the event loop, which authors' code may block.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)  # not for children of this process
        self.descriptor = descriptor
        self.end: Callable[[], None] = partial(os._exit, 1)
        """Ends the process: at once, until a server sets its own."""
        threading.Thread(target=self._watch, name="ors-lifeline", daemon=True).start()

    def _watch(self) -> None:
        watch = select.poll()
        watch.register(self.descriptor, 0)  # no data, only hang-up
        watch.poll()
        self.end()
