"""Finds authors' methods that hold the event loop: an `async def` that sleeps or computes."""

import asyncio
import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from os.path import basename
from types import CodeType, FrameType

from ors.server.observe.events import LoopHeld

EVERY_SECONDS = 0.1
HELD_SECONDS = 0.25
"""Shorter holds are not reported: a busy machine delays every program that long."""
_OURS = ("abc", "builtins", "ors.environment", "typing")


@dataclass(slots=True)
class _Hold:
    """A step of an author's coroutine that has not ended when the thread looked."""

    frame: FrameType
    method: tuple[str, str]
    where: str
    seconds: float


class LoopWatch:
    """A timer that beats ten times a second, and a thread that looks at the loop's stack if it does not.

    Calls pay nothing for it. The first look queues an answer for the loop. What is on the stack at the next
    look too, before that answer, is one step of a coroutine: its next step would be queued behind the answer.
    """

    def __init__(
        self, environments: Mapping[str, type], tell: Callable[[LoopHeld], None], is_alone: Callable[[], bool]
    ) -> None:
        self._names = {cls: name for name, cls in environments.items()}
        self._tell = tell  # on the event loop
        self._is_alone = is_alone  # whether no other thread runs authors' code
        self._codes = {code: name for name, cls in environments.items() for code in _codes_of(cls)}
        self._known: set[tuple[str, str]] = set()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._beaten = 0.0
        self._answered: float | None = None
        self._hold: _Hold | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts to watch the loop that runs in this thread."""
        self._stopping.clear()
        self._beat(loop)
        run = partial(self._run, loop, threading.get_ident())
        self._thread = threading.Thread(target=run, name="ors-loop-watch", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no thread can be started: the server works without
            self._thread = None

    def stop(self) -> None:
        self._stopping.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join(EVERY_SECONDS)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._beaten = time.monotonic()
        self._timer = loop.call_later(EVERY_SECONDS, self._beat, loop)

    def _answer(self) -> None:
        self._answered = time.monotonic()

    def _run(self, loop: asyncio.AbstractEventLoop, ident: int) -> None:
        clock = _cpu_clock(ident)
        at, used = time.monotonic(), clock()
        try:
            while not self._stopping.wait(EVERY_SECONDS):
                before, used_before, at, used = at, used, time.monotonic(), clock()
                if self._hold is not None and self._answered is not None:
                    self._close(loop, max(0.0, self._answered - before))
                if at - self._beaten > 1.5 * EVERY_SECONDS:
                    self._look(loop, ident, at - before, used - used_before)
        except RuntimeError:  # the loop has closed
            pass
        finally:
            self._hold = None

    def _look(self, loop: asyncio.AbstractEventLoop, ident: int, took: float, used: float) -> None:
        # A look that is late counts only if the loop's thread was computing: then it was one call into C that
        # kept this thread from looking. Otherwise other threads or programs had the processor.
        late = took > 2 * EVERY_SECONDS
        if late and used < min(took / 2, HELD_SECONDS):
            self._hold = None
            return
        frame = self._author_frame(ident)
        if self._hold is not None and self._hold.frame is frame:
            self._hold.seconds += took
            return
        self._close(loop, 0.0)
        # The method that made a call into C is still on the stack, unless a third thread was quicker.
        if frame is not None and (not late or self._is_alone()):
            self._answered = None
            loop.call_soon_threadsafe(self._answer)
            self._open(ident)

    def _open(self, ident: int) -> None:
        # Looks again: the step seen before the answer was queued may have ended.
        frame = self._author_frame(ident)
        if frame is not None:
            seconds = time.monotonic() - self._beaten - EVERY_SECONDS / 2
            where = _line(frame, sys._current_frames().get(ident))
            self._hold = _Hold(frame, self._name(frame), where, seconds)

    def _author_frame(self, ident: int) -> FrameType | None:
        """The outermost frame of an author's method: the method that the server called."""
        frame, found = sys._current_frames().get(ident), None
        while frame is not None:
            if frame.f_code in self._codes:
                found = frame
            frame = frame.f_back
        return found

    def _name(self, frame: FrameType) -> tuple[str, str]:
        # By the instance: two environments may inherit the method.
        code = frame.f_code
        first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        cls = first if isinstance(first, type) else type(first)
        owner = type(getattr(first, "__dict__", {}).get("env"))  # of a toolset
        environment = self._names.get(cls) or self._names.get(owner) or self._codes[code]
        method = code.co_qualname if first is None else f"{cls.__name__}.{code.co_name}"
        return environment, method

    def _close(self, loop: asyncio.AbstractEventLoop, tail: float) -> None:
        hold, self._hold = self._hold, None
        if hold is None or hold.seconds + tail < HELD_SECONDS:
            return
        first = hold.method not in self._known
        self._known.add(hold.method)
        event = LoopHeld(*hold.method, hold.seconds + tail, hold.where, first)
        loop.call_soon_threadsafe(self._tell, event)


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


def _cpu_clock(ident: int) -> Callable[[], float]:
    """The processor time that a thread has used."""
    if not hasattr(time, "pthread_getcpuclockid"):  # as on macOS: then only looks that are on time count
        return lambda: 0.0
    return partial(time.clock_gettime, time.pthread_getcpuclockid(ident))
