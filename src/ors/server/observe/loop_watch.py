"""Measures the lag of the event loop, and names authors' methods that hold it up."""

import asyncio
import inspect
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from os.path import basename
from types import CodeType, FrameType

from ors.server.observe.events import LoopHeld

EVERY_SECONDS = 0.1
LOOK_SECONDS = 0.05
HELD_SECONDS = 0.25
"""Shorter holds are not reported: a busy machine delays every program that long."""
SAMPLES = 300
"""Half a minute, so that no scrape misses a peak since the previous one."""
_OURS = ("abc", "builtins", "ors.environment", "typing")


class LoopWatch:
    """A timer that beats ten times a second, and a thread that looks at the loop's stack if it does not.

    Calls pay nothing for it. A method that two looks find, with no beat in between, runs one long step.
    """

    def __init__(self, environments: Mapping[str, type], tell: Callable[[LoopHeld], None]) -> None:
        self._tell = tell  # on the event loop
        self._codes: dict[CodeType, str] = {}
        for name, cls in environments.items():
            for code in _codes_of(cls):
                self._codes.setdefault(code, name)  # of environments that inherit it, the first
        self._known: set[str] = set()
        self._lags: deque[float] = deque(maxlen=SAMPLES)
        self._stopping = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._beaten = 0.0
        self._seen: FrameType | None = None  # by the last look
        self._found: tuple[str, str, str] | None = None  # environment, method and line of a long step

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
            environment, method, where = found
            self._tell(
                LoopHeld(environment, method, lag + EVERY_SECONDS / 2, where, method not in self._known)
            )
            self._known.add(method)

    def _run(self, stopping: threading.Event, ident: int) -> None:
        while not stopping.wait(LOOK_SECONDS):
            before, self._seen = self._seen, None
            if time.monotonic() - self._beaten > EVERY_SECONDS + LOOK_SECONDS / 2:
                self._seen = method = self._authors_method(ident)
                if method is not None and method is before:
                    environment, name = self._codes[method.f_code], method.f_code.co_qualname
                    self._found = (environment, name, _line(method, sys._current_frames().get(ident)))

    def _authors_method(self, ident: int) -> FrameType | None:
        """The outermost frame of an author's method: the method that the server called."""
        frame, found = sys._current_frames().get(ident), None
        while frame is not None:
            if frame.f_code in self._codes:
                found = frame
            frame = frame.f_back
        return found


def _codes_of(cls: type) -> Iterator[CodeType]:
    """The code of every method of an environment and its toolsets."""
    toolsets: Iterable[type] = getattr(cls, "toolsets", None) or ()
    for base in dict.fromkeys(base for owner in (cls, *toolsets) for base in owner.__mro__):
        if base.__module__ in _OURS:
            continue
        for raw in vars(base).values():
            function = getattr(raw, "__func__", raw)  # of a classmethod
            code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
            if isinstance(code, CodeType):
                yield code


def _line(method: FrameType, frame: FrameType | None) -> str:
    """The line of the method's file that runs now."""
    file = method.f_code.co_filename
    while frame is not None and frame is not method and frame.f_code.co_filename != file:
        frame = frame.f_back
    return f"{basename(file)}:{(frame or method).f_lineno}"
