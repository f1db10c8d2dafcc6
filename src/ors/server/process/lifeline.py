"""The tie between this process and the one that has started it."""

import os
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

LIFELINE = "ORS_SERVE_LIFELINE"
"""The environment variable by which `ors serve` learns of a pipe whose other end is its starter's."""


@contextmanager
def tied() -> Iterator[int]:
    """A descriptor for processes that are to end with this one, or at the end of the block."""
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
        os.set_inheritable(descriptor, False)  # it was handed down, and is handed on to nobody
        self.descriptor = descriptor
        self.end: Callable[[], None] = partial(os._exit, 1)
        """Ends the process; before anything is served, at once."""
        threading.Thread(target=self._watch, name="ors-lifeline", daemon=True).start()

    def _watch(self) -> None:
        watch = select.poll()
        watch.register(self.descriptor, 0)  # not for data, only for the end
        watch.poll()
        self.end()
