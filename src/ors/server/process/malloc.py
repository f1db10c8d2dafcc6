"""Returns freed heap memory to the operating system."""

import ctypes
import time
from collections.abc import Callable

PAUSE_FACTOR = 1000
"""Trimming may take a thousandth of the time: with many small blocks it is slow."""


class FreedMemory:
    """Trims the heap of the C library.

    After a long result was freed, glibc allocates the next ones in its heap (its mmap threshold follows the
    longest freed block, up to 32 MiB), where a later block keeps the hole before it: in a soak test with
    results of 10 MB, 55 of 178 MB were such holes. A fixed threshold would avoid it too, but then a result of
    3 MB takes five times as long, since all its pages are new. Finding holes takes 0.1 ms, and returning
    10 MB up to 4.
    """

    def __init__(self) -> None:
        self._trim = _malloc_trim()
        self._not_before = 0.0

    def give_back(self, now: float) -> None:
        """Trims the heap, unless that was done just now."""
        if self._trim is None or now < self._not_before:
            return
        began = time.perf_counter()
        self._trim(0)
        self._not_before = now + PAUSE_FACTOR * (time.perf_counter() - began)


def _malloc_trim() -> Callable[[int], int] | None:
    # Only glibc has and needs it.
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    trim.argtypes = [ctypes.c_size_t]
    return trim
