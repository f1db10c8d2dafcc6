"""Memory that was let go, given back to the system."""

import ctypes
import time
from collections.abc import Callable

RARELY = 1000
"""Giving back takes a thousandth of the time at most: looking through a heap of many small pieces is slow."""


class FreedMemory:
    """What the C library keeps of it.

    Once a long result has been freed, glibc puts those that follow into its heap (its threshold for blocks of
    their own follows the longest that was freed, up to 32 MiB), where what lies behind a hole keeps the hole:
    in a soak with results of 10 MB, 55 of 178 MB were such holes. Having every long result in a block of its
    own would avoid it too, but a result of 3 MB then takes five times as long, since all its pages are new.
    Looking for holes takes 0.1 ms, and giving 10 MB back up to 4.
    """

    def __init__(self) -> None:
        self._trim = _malloc_trim()
        self._not_before = 0.0

    def give_back(self, now: float) -> None:
        """Gives back what is free, unless it was done just now."""
        if self._trim is None or now < self._not_before:
            return
        began = time.perf_counter()
        self._trim(0)
        self._not_before = now + RARELY * (time.perf_counter() - began)


def _malloc_trim() -> Callable[[int], int] | None:
    # glibc alone has it; the C libraries of macOS and Alpine need none.
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    trim.argtypes = [ctypes.c_size_t]
    return trim
