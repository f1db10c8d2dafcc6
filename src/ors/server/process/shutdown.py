"""An end of the process that comes, whatever authors' code does."""

import atexit
import logging
import math
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType

log = logging.getLogger("ors.server")

LAST_ACTS_SECONDS = 5.0
"""For what was registered to be done at exit, such as sending the last spans."""

_OURS = str(Path(__file__).parent)
_STDLIB = sysconfig.get_path("stdlib")


class Deadline:
    """Ends the process when its end takes too long, such as by a tool that blocks the event loop."""

    def __init__(self) -> None:
        self._seconds: SimpleQueue[float | None] = SimpleQueue()  # which a signal handler may put into
        threading.Thread(target=self._watch, name="ors-end", daemon=True).start()

    def set(self, seconds: float) -> None:
        """The end is to come within so many seconds."""
        self._seconds.put(seconds)

    def lift(self) -> None:
        """It has come."""
        self._seconds.put(None)

    def _watch(self) -> None:
        until = math.inf
        seconds = self._seconds.get()
        try:
            while seconds is not None:
                if time.monotonic() + seconds < until:  # a further signal never gives more time
                    until = time.monotonic() + seconds
                    log.info("told to end, which takes %g s at most", seconds)
                seconds = self._seconds.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            log.error("the end did not come in time; left behind: %s", "; ".join(at_work()))
            leave()


def leave() -> None:
    """Ends the process now, with 0, and without waiting for any thread."""
    acts = threading.Thread(target=atexit._run_exitfuncs, name="ors-last-acts", daemon=True)
    if _started(acts):
        acts.join(LAST_ACTS_SECONDS)
    os._exit(0)


def _started(thread: threading.Thread) -> bool:
    try:
        thread.start()
    except RuntimeError as error:  # there are too many: the end comes all the same
        log.error("the end comes without %s: %s", thread.name, error)
        return False
    return True


def leave_threads(seconds: float) -> None:
    """Ends the process if there are threads, after so many seconds, that Python would wait for.

    If there are none, it is about to end by itself, and what was registered for that may not hang either.
    """
    deadline = time.monotonic() + seconds
    for thread, _ in _others():
        if not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
    left = [told(thread, frame) for thread, frame in _others() if not thread.daemon]
    if left:
        log.warning("left behind: %s", "; ".join(left))
        leave()
    last = threading.Timer(LAST_ACTS_SECONDS, os._exit, (0,))
    last.name = "ors-last-timer"
    last.daemon = True
    _started(last)


def at_work() -> list[str]:
    """What all threads do, this one apart."""
    return [told(thread, frame) for thread, frame in _others(main=True)]


def told(thread: threading.Thread, frame: FrameType) -> str:
    """Where a thread is, in words."""
    # The author's own line says more than the lock that it waits for, deep in a library.
    place: FrameType | None = frame
    while place is not None and place.f_code.co_filename.startswith((_OURS, _STDLIB)):
        place = place.f_back
    place = place or frame
    code = place.f_code
    return f"thread {thread.name} in {code.co_name} ({code.co_filename}:{place.f_lineno})"


def _others(*, main: bool = False) -> Iterator[tuple[threading.Thread, FrameType]]:
    frames = sys._current_frames()
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is None or thread is threading.current_thread():
            continue
        if main or thread is not threading.main_thread():
            yield thread, frame
