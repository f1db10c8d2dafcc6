"""Guarantees that the process exits even if environment code hangs."""

import atexit
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from types import FrameType

from ors.server.episodes.threads import describe_thread

log = logging.getLogger("ors.server")

LAST_ACTS_SECONDS = 5.0
"""Time for functions registered with atexit, such as sending the last spans."""


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
            log.error("did not end in time; still running at exit: %s", "; ".join(other_threads()))
            leave()


def leave() -> None:
    """Ends the process now, with exit code 0, without waiting for threads."""
    acts = threading.Thread(target=atexit._run_exitfuncs, name="ors-last-acts", daemon=True)
    if _started(acts):
        acts.join(LAST_ACTS_SECONDS)
    os._exit(0)


def _started(thread: threading.Thread) -> bool:
    try:
        thread.start()
    except RuntimeError as error:  # too many threads: the process ends all the same
        log.error("ending without %s: %s", thread.name, error)
        return False
    return True


def leave_threads(seconds: float) -> None:
    """Ends the process if, after `seconds`, threads remain that Python would wait for.

    Otherwise it ends by itself; a timer makes sure that functions registered with atexit do not hang.
    """
    deadline = time.monotonic() + seconds
    for thread, _ in _others():
        if not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
    left = [describe_thread(thread, frame) for thread, frame in _others() if not thread.daemon]
    if left:
        log.warning("still running at exit: %s", "; ".join(left))
        leave()
    last = threading.Timer(LAST_ACTS_SECONDS, os._exit, (0,))
    last.name = "ors-last-timer"
    last.daemon = True
    _started(last)


def other_threads() -> list[str]:
    return [describe_thread(thread, frame) for thread, frame in _others(main=True)]


def _others(*, main: bool = False) -> Iterator[tuple[threading.Thread, FrameType]]:
    frames = sys._current_frames()
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is None or thread is threading.current_thread():
            continue
        if main or thread is not threading.main_thread():
            yield thread, frame
