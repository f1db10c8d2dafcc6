"""An event loop in a background thread, on which sync code runs async code."""

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_STOP_SECONDS = 10.0
_CANCEL_SECONDS = 1.0


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

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], undo: Callable[[], None] | None = None) -> T:
        """Runs `work()`; returns its result. On Ctrl-C cancels it, or calls `undo` if it was done by then.

        What is cancelled has a second to end, so that a client can be closed after it.

        Raises:
            RuntimeError: the client is closed, was made before a fork, or is used on its own loop.
        """
        loop = self._running_loop()
        job = _Job(work, undo)
        started: list[Future[T]] = []
        try:
            # Inside: Ctrl-C may come as soon as the work is on its way.
            started.append(asyncio.run_coroutine_threadsafe(job.run(), loop))
            return started[0].result()
        except BaseException:
            with suppress(RuntimeError):  # a closed loop has cancelled all tasks
                loop.call_soon_threadsafe(job.cancel)
                wait(started, _CANCEL_SECONDS)
            raise

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
                raise RuntimeError("this client is closed: make a new one")
            if self._loop is None:
                self._start()
        if threading.current_thread() is self._thread:
            raise RuntimeError("this client cannot wait for itself: use it outside of its own callbacks")
        assert self._loop is not None
        return self._loop

    def _start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_serve, args=(self._loop,), name="ors-client", daemon=True)
        # Runs once: on close(), at exit, or at garbage collection, as the thread does not refer to `self`.
        self._end = weakref.finalize(self, _stop, self._last, self._loop, self._thread, self._pid)
        self._thread.start()


class _Job(Generic[T]):
    """Work that its caller may cancel at any time: before it begins, while it runs, when it is done."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]], undo: Callable[[], None] | None) -> None:
        self._work = work
        self._undo = undo
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False
        self._succeeded = False

    async def run(self) -> T:
        if self._cancelled:
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        result = await self._work()
        self._succeeded = True
        return result

    def cancel(self) -> None:
        """Cancels the work, or undoes it if it is done. Runs on the loop."""
        self._cancelled = True
        if self._succeeded and self._undo is not None:
            self._undo()
        elif self._task is not None:
            self._task.cancel()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
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
        thread.join(2 * _STOP_SECONDS)
