"""An event loop in a background thread, on which sync code runs async code."""

import asyncio
import math
import os
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, TypeVar

T = TypeVar("T")

_STOP_SECONDS = 10.0
_CANCEL_SECONDS = 1.0
_SIGNAL_SECONDS = 0.5
"""A wait lasts no longer: Ctrl-C just before it does not end it, and is only seen after it."""
CLOSED = "this client is closed: make a new one"


class Portal:
    """One event loop in a thread of its own, which also runs between calls, for pings.

    Starts with the first call. Runs `last()` and stops on `close()`, when the interpreter exits, or when the
    portal is garbage-collected.
    """

    def __init__(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._last = last
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._closed = False
        self._end: Callable[[], object] | None = None
        self._inbox = _Inbox()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], undo: Callable[[], None] | None = None) -> T:
        """Runs `work()`; returns its result. On Ctrl-C cancels it and calls `undo`, unless it has failed.

        What is cancelled has a second to end, so that a client can be closed after it.

        Raises:
            RuntimeError: the client is closed, was made before a fork, or is used on its own loop.
        """
        tasks: list[asyncio.Task[T]] = []  # one, once the work has begun

        def begin(ending: Ending) -> None:
            tasks.append(asyncio.get_running_loop().create_task(work()))
            tasks[0].add_done_callback(ending.come)

        def cancel() -> None:
            for task in tasks:
                if not task.cancel() and (task.cancelled() or task.exception() is not None):
                    return
            if undo is not None:
                undo()

        return self.wait(begin, lambda: tasks[0].result(), cancel)

    def wait(
        self, begin: Callable[["Ending"], object], result: Callable[[], T], cancel: Callable[[], object]
    ) -> T:
        """Calls `begin(ending)` on the loop, waits for the ending, and returns `result()`.

        On Ctrl-C calls `cancel` on the loop; the ending has a second to come then.

        Raises:
            RuntimeError: the client is closed, was made before a fork, or is used on its own loop.
        """
        loop = self._running_loop()
        ending = Ending()
        try:
            # Inside: Ctrl-C may come as soon as the work is on its way.
            self._inbox.put(loop, ending, begin)
            ending.wait()
            if ending.error is None:
                return result()
        except asyncio.CancelledError:
            raise CancelledError("the client was closed") from None
        except BaseException:
            with suppress(RuntimeError):  # a closed loop has cancelled all tasks
                loop.call_soon_threadsafe(self._inbox.do)  # it may not have been woken yet
                loop.call_soon_threadsafe(cancel)
                ending.wait(_CANCEL_SECONDS)
            raise
        raise ending.error

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Iterates over `items` from sync code; closes them when the iteration is left."""

        async def take() -> tuple[T] | None:
            async for item in items:
                return (item,)
            return None

        try:
            while (taken := self.run(take)) is not None:
                yield taken[0]
        finally:
            aclose = getattr(items, "aclose", None)
            if aclose is not None:
                with suppress(RuntimeError):  # the client is closed, which has ended `items` too
                    self.run(aclose)

    def close(self) -> None:
        """Stops the loop, if it was started."""
        with self._lock:
            self._closed = True
        if self._end is not None:
            self._end()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():
            raise RuntimeError("this client was made before a fork: make one in each process")
        with self._lock:
            if self._closed:
                raise RuntimeError(CLOSED)
            if self._loop is None:
                self._start()
        if threading.current_thread() is self._thread:
            raise RuntimeError("this client cannot wait for itself: use it outside its own callbacks")
        assert self._loop is not None
        return self._loop

    def _start(self) -> None:
        self._loop = _new_loop()
        self._thread = threading.Thread(
            target=_serve, args=(self._loop, self._inbox), name="ors-client", daemon=True
        )
        # Runs once: on close(), at exit, or at garbage collection, as the thread does not refer to `self`.
        self._end = weakref.finalize(self, _stop, self._last, self._loop, self._thread, self._pid)
        self._thread.start()


class Ending:
    """Lets a thread wait by a lock, which costs half as much as `asyncio.run_coroutine_threadsafe`."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        """Why there will be no result."""
        self._come = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def begin(self, begin: Callable[["Ending"], object]) -> None:
        """Calls `begin`, which lets the end come. If it fails, that is the end."""
        try:
            begin(self)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Lets the thread raise an error."""
        self.error = error
        self.come()

    def come(self, *_: object) -> None:
        """Lets the thread go on; once."""
        self._come = True
        self._lock.release()

    def wait(self, seconds: float = math.inf) -> None:
        """Waits for the end, for at most so many seconds."""
        while not self._come and seconds > 0 and not self._lock.acquire(timeout=_SIGNAL_SECONDS):
            seconds -= _SIGNAL_SECONDS


class _Inbox:
    """Work for the loop. A loop that will look at it anyway is not woken again, which costs a system call."""

    def __init__(self) -> None:
        self._work: deque[tuple[Context, Ending, Callable[[Ending], object]]] = deque()
        self._woken = False
        self._closed = False

    def put(
        self, loop: asyncio.AbstractEventLoop, ending: "Ending", begin: Callable[["Ending"], object]
    ) -> None:
        """Has the loop call `begin(ending)`, in the context of this thread."""
        self._work.append((copy_context(), ending, begin))
        if not self._woken:
            self._woken = True
            loop.call_soon_threadsafe(self.do)
        if self._closed:
            self.close()

    def do(self) -> None:
        """Begins all work that is there. Runs on the loop."""
        self._woken = False  # first: what comes from now on wakes the loop again
        while self._work:
            context, ending, begin = self._work.popleft()
            context.run(ending.begin, begin)

    def close(self) -> None:
        """Refuses the work that the loop has not begun, and what comes later."""
        self._closed = True
        while self._work:
            self._work.popleft()[1].fail(RuntimeError(CLOSED))


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # late: programs without a sync client need not load it
    except ImportError:  # where it cannot be installed, such as on Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _serve(loop: asyncio.AbstractEventLoop, inbox: _Inbox) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
        inbox.close()


def _stop(
    last: Callable[[], Coroutine[Any, Any, None]],
    loop: asyncio.AbstractEventLoop,
    thread: threading.Thread,
    pid: int,
) -> None:
    if pid != os.getpid():
        return

    async def end() -> None:
        try:
            await asyncio.wait_for(last(), _STOP_SECONDS)
        finally:
            loop.stop()

    asyncio.run_coroutine_threadsafe(end(), loop)
    if threading.current_thread() is not thread:
        for _ in range(round(2 * _STOP_SECONDS / _SIGNAL_SECONDS)):
            thread.join(_SIGNAL_SECONDS)
