"""A process in which no further thread can be started."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

ADDRESS_SPACE = 1 << 47


@contextmanager
def no_new_thread() -> Iterator[None]:
    """No thread can be started while the block runs: there is no room for its stack."""
    before = threading.stack_size(ADDRESS_SPACE)
    try:
        yield
    finally:
        threading.stack_size(before)
