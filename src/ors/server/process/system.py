"""The server's process and the system: temporary folders, forked children, the parent, memory, the end."""

import atexit
import ctypes
import logging
import math
import os
import select
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Protocol
from weakref import WeakSet

from ors.server.episodes.threads import describe_thread

try:
    import fcntl
except ImportError:  # not a POSIX system: folders of killed processes stay
    fcntl = None  # type: ignore[assignment]

PREFIX = "ors-"
LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is in use as long as some process holds its lock."""

    path: Path
    lock: int
    """The file descriptor of the lock, to be inherited by processes that also use the folder."""


@contextmanager
def own_folder(prefix: str = PREFIX) -> Iterator[Folder]:
    """A new temporary folder, removed at the end of the block."""
    remove_dead()
    folder = _create(prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder.path, ignore_errors=True)
        os.close(folder.lock)


def _create(prefix: str) -> Folder:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix))
        lock = os.open(path / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        if fcntl is None or (_locked(lock) and os.fstat(lock).st_nlink):
            return Folder(path, lock)
        os.close(lock)  # another process removed it before it was locked


def remove_dead() -> None:
    """Removes the folders of this user whose lock no process holds."""
    if fcntl is None:
        return
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            about = path.lstat()
            if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid():
                _remove_if_dead(path)


def _remove_if_dead(path: Path) -> None:
    lock = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)  # a folder without a lock may be in use
    try:
        if _locked(lock):
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


LIFELINE = "ORS_SERVE_LIFELINE"
"""Environment variable with the descriptor of a pipe whose other end the parent of `ors serve` holds."""
PAUSE_FACTOR = 1000
"""Trimming may take a thousandth of the time: with many small blocks it is slow."""
_ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


# ── Forked children, such as those of multiprocessing ────────────────────────────────────────────


class Forking(Protocol):
    """A server in whose process tools may fork."""

    def in_child(self) -> None:
        """Runs in a forked child, in its only thread, before the author's code continues."""


# Module-level, since os.register_at_fork cannot be undone: it is called once, for all servers of a process.
_SERVERS: WeakSet[Forking] = WeakSet()
_MASKS = threading.local()


def handle_forks(server: Forking) -> None:
    """Calls `in_child` of a server in every child that is forked from now on."""
    _SERVERS.add(server)


def _before() -> None:
    # A signal would have no effect in a child that still has the server's handlers.
    _MASKS.before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def _after() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _MASKS.before)


def _in_child() -> None:
    try:
        for server in list(_SERVERS):
            server.in_child()
    finally:
        _after()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)


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
