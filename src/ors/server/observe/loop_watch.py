"""Measures the lag of the event loop, and names authors' methods that block it."""

import asyncio
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from os.path import basename
from pathlib import Path
from types import FrameType

from ors.server.observe.events import LoopHeld

EVERY_SECONDS = 0.1
LOOK_SECONDS = 0.05
HELD_SECONDS = 0.25
"""Shorter holds are not reported: a busy machine delays every program that long."""
SAMPLES = 300
"""Half a minute, so that no scrape misses a peak since the previous one."""
_OURS = str(Path(__file__).parents[2])
_STDLIB = sysconfig.get_path("stdlib")


class LoopWatch:
    """A timer that beats ten times a second, and a thread that looks at the loop's stack if it does not.

    Calls pay nothing for it. A method that two looks find, with no beat in between, runs one long step.
    """

    def __init__(self, tell: Callable[[LoopHeld], None]) -> None:
        self._tell = tell  # on the event loop
        self._known: set[str] = set()
        self._lags: deque[float] = deque(maxlen=SAMPLES)
        self._stopping = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._beaten = 0.0
        self._found: tuple[str, str] | None = None  # method and line of a long step

    @property
    def lag(self) -> float:
        return max(list(self._lags), default=0.0)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts to watch the loop that runs in this thread."""
        self._stopping = threading.Event()
        self._beaten = time.monotonic()
        self._timer = loop.call_later(EVERY_SECONDS, self._beat, loop)
        arguments = (self._stopping, threading.get_ident())
        with suppress(RuntimeError):  # no thread can be started: the server works without
            threading.Thread(target=self._run, args=arguments, name="ors-loop-watch", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        before, self._beaten = self._beaten, time.monotonic()
        lag = max(0.0, self._beaten - before - EVERY_SECONDS)
        self._lags.append(lag)
        self._timer = loop.call_later(EVERY_SECONDS, self._beat, loop)
        found, self._found = self._found, None
        if found is not None and lag + EVERY_SECONDS / 2 >= HELD_SECONDS:
            method, where = found
            self._tell(LoopHeld(method, lag + EVERY_SECONDS / 2, where, method not in self._known))
            self._known.add(method)

    def _run(self, stopping: threading.Event, ident: int) -> None:
        seen: FrameType | None = None  # by the last look
        while not stopping.wait(LOOK_SECONDS):
            before, seen = seen, None
            if time.monotonic() - self._beaten > EVERY_SECONDS + LOOK_SECONDS / 2:
                seen = _authors_method(sys._current_frames().get(ident))
                if seen is not None and seen is before:
                    code = seen.f_code
                    self._found = (code.co_qualname, f"{basename(code.co_filename)}:{seen.f_lineno}")


def _authors_method(frame: FrameType | None) -> FrameType | None:
    """The frame that this package has called, if that is not its own."""
    found = None
    while frame is not None:
        if frame.f_code.co_filename.startswith(_OURS):
            if found is not None:
                return found
        elif not frame.f_code.co_filename.startswith(_STDLIB):
            found = frame
        frame = frame.f_back
    return None
