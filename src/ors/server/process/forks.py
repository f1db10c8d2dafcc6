"""Ensures that a copy of the process, forked by authors' code, does not serve."""

import asyncio
import gc
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NoReturn
from weakref import WeakSet

from ors.server.episodes.threads import Threads


class Copies:
    """Makes every forked copy release one server, and exit instead of serving.

    Authors' code continues in the copy, such as in a `multiprocessing.Process`. When it returns to the event
    loop or to its thread of the server, the copy exits.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self.release: Callable[[], None] | None = None
        """Releases what the server holds: its sockets and signal handlers."""

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts to handle forks, for a server on this thread's event loop."""
        self._loop = loop
        self._thread = threading.get_ident()
        _ALL.add(self)

    def in_copy(self) -> None:
        """Runs in a copy, in its only thread, before the author's code continues."""
        if self.release is not None:
            self.release()
        self._threads.end_with_job(end_copy)
        if self._loop is not None and self._loop.is_running() and threading.get_ident() == self._thread:
            _end_at_next_step(self._loop)


# Module-level, since os.register_at_fork cannot be undone: it is called once, for all servers of a process.
_ALL: WeakSet[Copies] = WeakSet()


_MASKS = threading.local()
_ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def _before() -> None:
    # A signal would have no effect in a copy that still has the server's handlers.
    _MASKS.before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def _after() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _MASKS.before)


def _in_copy() -> None:
    try:
        for copies in list(_ALL):
            copies.in_copy()
    finally:
        _after()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_copy)


def _end_at_next_step(loop: asyncio.AbstractEventLoop) -> None:
    """Ends the process when the running code returns to the event loop, or awaits."""
    end = loop.call_soon(os._exit, 0)
    # Before other ready callbacks, which are other sessions' code. uvloop's queue has no name.
    for found in (getattr(loop, "_ready", None), *gc.get_referents(loop)):
        if isinstance(found, deque) and found and found[-1] is end:
            found.rotate(1)
            return


def end_copy(error: BaseException | None) -> NoReturn:
    """Ends a copy with the exit code that Python gives a process whose code returns or raises."""
    code: Any = 0 if error is None else 1
    if isinstance(error, SystemExit):
        code = error.code or 0
    elif error is not None:
        # Without its text, which may hold a secret.
        place = traceback.extract_tb(error.__traceback__)[-1:]
        where = "".join(f" ({each.filename}:{each.lineno})" for each in place)
        _say(f"a copy of the server's process, made by fork, failed: {type(error).__name__}{where}")
    if not isinstance(code, int):
        _say(str(code))
        code = 1
    os._exit(code & 0xFF)


def _say(line: str) -> None:
    # Not by sys.stderr: its lock may be held by a thread that the copy does not have.
    with suppress(OSError):
        os.write(2, f"{line}\n".encode(errors="backslashreplace"))


def disown(descriptors: Iterable[int]) -> None:
    """Closes file descriptors but keeps their numbers in use, so that objects which hold them do no harm."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in descriptors:
        with suppress(OSError):
            os.dup2(null, number, inheritable=False)
    os.close(null)


def disown_signals(handler: Callable[..., Any]) -> None:
    """Restores the default handlers of the ending signals, where the server's handler is set."""
    signal.set_wakeup_fd(-1)
    for number in _ENDING:
        if signal.getsignal(number) == handler:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
