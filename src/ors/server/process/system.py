"""The server's process and the system: the parent, memory, the end."""

import atexit
import ctypes
import logging
import math
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from types import FrameType

from ors.server.episodes.threads import describe_thread

log = logging.getLogger("ors.server")

LIFELINE = "ORS_SERVE_LIFELINE"
"""Environment variable with the descriptor of a pipe whose other end the parent of `ors serve` holds."""
PAUSE_FACTOR = 1000
"""Trimming may take a thousandth of the time: with many small blocks it is slow."""
LAST_ACTS_SECONDS = 5.0
"""Time for functions registered with atexit, such as sending the last spans."""


# ── The parent ───────────────────────────────────────────────────────────────────────────────────


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


# ── Freed memory ─────────────────────────────────────────────────────────────────────────────────


class FreedMemory:
    """Trims the heap of glibc, which keeps the holes that freed results leave.

    In a soak test with results of 10 MB, 55 of 178 MB were such holes. A fixed mmap threshold would avoid
    them too, but then a result of 3 MB takes five times as long, since all its pages are new.
    """

    def __init__(self) -> None:
        try:
            self._trim: Callable[[int], int] | None = ctypes.CDLL(None).malloc_trim
        except (AttributeError, OSError, TypeError):  # another C library: it has no need
            self._trim = None
        self._not_before = 0.0

    def give_back(self, now: float) -> None:
        if self._trim is None or now < self._not_before:
            return
        began = time.perf_counter()
        self._trim(0)
        self._not_before = now + PAUSE_FACTOR * (time.perf_counter() - began)


# ── The end ──────────────────────────────────────────────────────────────────────────────────────


class Deadline:
    """Ends the process if its shutdown takes too long, such as with a tool that blocks the event loop."""

    def __init__(self, grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._seconds: SimpleQueue[float | None] = SimpleQueue()  # safe in a signal handler
        threading.Thread(target=self._watch, name="ors-end", daemon=True).start()

    def set(self, seconds: float) -> None:
        """Ends the process after `seconds`, unless it ends before."""
        self._seconds.put(seconds)

    def lift(self) -> None:
        self._seconds.put(None)

    def _watch(self) -> None:
        until = math.inf
        seconds = self._seconds.get()
        try:
            while seconds is not None:
                if time.monotonic() + seconds < until:  # a further signal never gives more time
                    waits = self._grace_seconds if until == math.inf else 0.0
                    log.info("shutting down (waits up to %g s for running calls)", waits)
                    until = time.monotonic() + seconds
                seconds = self._seconds.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            log.error("did not end in time; still running at exit: %s", _described(_others()))
            leave()


def leave() -> None:
    """Ends the process now, with exit code 0, without waiting for threads."""
    if _bound_last_acts():
        atexit._run_exitfuncs()
    os._exit(0)


def leave_threads(seconds: float) -> None:
    """Ends the process if, after `seconds`, threads remain that Python would wait for."""
    deadline = time.monotonic() + seconds
    for thread, _ in _others():
        if not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
    left = [(thread, frame) for thread, frame in _others() if not thread.daemon]
    if left:
        log.warning("still running at exit: %s", _described(left))
        leave()
    _bound_last_acts()


def _bound_last_acts() -> bool:
    """Ends the process soon, even if functions registered with atexit hang; False if it cannot."""
    last = threading.Timer(LAST_ACTS_SECONDS, os._exit, (0,))
    last.name = "ors-last-timer"
    last.daemon = True
    try:
        last.start()
    except RuntimeError as error:  # too many threads
        log.error("ending without %s: %s", last.name, error)
        return False
    return True


def _others() -> list[tuple[threading.Thread, FrameType]]:
    frames = sys._current_frames()
    threads = [each for each in threading.enumerate() if each is not threading.current_thread()]
    return [(each, frames[each.ident]) for each in threads if each.ident in frames]


def _described(threads: Iterable[tuple[threading.Thread, FrameType]]) -> str:
    return "; ".join(describe_thread(thread, frame) for thread, frame in threads)
