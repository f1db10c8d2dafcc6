"""Threads for authors' sync code: as many as are needed, kept warm."""

import asyncio
import contextvars
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

from ors.server.process.shutdown import told

_Job = tuple[asyncio.Future[Any], contextvars.Context, Callable[..., Any], tuple[Any, ...]]
_Result = tuple[asyncio.Future[Any], Any, BaseException | None]

IDLE_SECONDS = 30.0


class NoThread(RuntimeError):
    """No thread could be started for a job, which has not run and never will."""

    def __init__(self, why: BaseException) -> None:
        super().__init__(
            f"the server could not start another thread ({why}): raise its limit of threads or of memory, "
            "or let it run fewer calls at once"
        )


class Threads:
    """Runs functions in threads, for one event loop.

    There is no upper bound: a tool that hangs must not keep another session's tool waiting. Threads are
    daemons, so one that hangs does not keep the process alive. Results come back in batches: one wake-up of
    the loop takes all that are there (2 µs a call with 32 in flight, against 13 by run_in_executor).
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._results: deque[_Result] = deque()
        self._lock: AbstractContextManager[Any] = threading.Lock()
        self._free = 0  # threads that wait for a job, less the jobs that wait for a thread
        self._waking = False
        self._number = 0
        self._running: set[asyncio.Future[Any]] = set()
        self._overs: dict[asyncio.Future[Any], asyncio.Future[None]] = {}
        self._all: set[threading.Thread] = set()
        self.copied = False
        """Whether this is a copy of the process that the threads were started in."""

    def run(self, fn: Callable[..., Any], /, *args: Any) -> asyncio.Future[Any]:
        """Starts `fn(*args)` in a thread; the future has its result. If cancelled before, it never runs.

        Raises:
            NoThread: none could be started.
        """
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self._lock:
            self._free -= 1
            short = self._free < 0
            if short:
                self._free += 1
                self._number += 1
        if short:  # the thread first: a job that is refused must not lie in the queue
            self._start(loop)
        self._running.add(future)
        self._jobs.put((future, contextvars.copy_context(), fn, args))
        return future

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        name = f"ors-tool-{self._number}"
        try:
            threading.Thread(target=self._work, args=(loop,), name=name, daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            raise NoThread(error) from error

    def over(self, future: asyncio.Future[Any]) -> asyncio.Future[None]:
        """A future that is done once nothing of a job runs any more, also if nobody waits for its result."""
        over: asyncio.Future[None] = future.get_loop().create_future()
        if future in self._running:
            self._overs[future] = over
        else:
            over.set_result(None)
        return over

    @property
    def lost(self) -> int:
        """Threads at work that nobody waits for any more: they cannot be stopped."""
        return sum(future.cancelled() for future in list(self._running))

    def busy(self) -> list[str]:
        """What each thread that is at work does."""
        frames = sys._current_frames()
        found = [(thread, frames.get(thread.ident or 0)) for thread in list(self._all)]
        waits = Threads._work.__code__
        return [told(thread, frame) for thread, frame in found if frame and frame.f_code is not waits]

    def end_with_job(self, end: Callable[[BaseException | None], NoReturn]) -> None:
        """Lets the process end with the job that runs in this thread: it is a copy, and has no other."""
        self.copied = True
        self._results.clear()  # of other threads' jobs
        self._lock = _Last(self._results, end)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        self._all.add(threading.current_thread())
        while True:
            try:
                future, context, fn, args = self._jobs.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._free <= 0:  # a job is on its way to us
                        continue
                    self._free -= 1
                self._all.discard(threading.current_thread())
                return
            self._finish(loop, future, context, fn, args)
            # Nothing of the last job may live on in a thread that waits.
            del future, context, fn, args
            with self._lock:
                self._free += 1

    def _finish(
        self,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
        context: contextvars.Context,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
    ) -> None:
        try:
            # What was cancelled before it began must not begin.
            result = None if future.cancelled() else context.run(fn, *args)
            self._results.append((future, result, None))
        except BaseException as error:  # also SystemExit: a tool must not end the server
            self._results.append((future, None, error))
        with self._lock:
            wake, self._waking = not self._waking, True
        if wake:
            try:
                loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop has closed: nobody waits any more
                self._waking = False

    def _deliver(self) -> None:
        with self._lock:
            self._waking = False
        while self._results:
            future, result, error = self._results.popleft()
            self._running.discard(future)
            if self._overs and (over := self._overs.pop(future, None)) is not None and not over.done():
                over.set_result(None)
            if future.done():  # the call was cancelled
                continue
            if error is None:
                future.set_result(result)
            elif isinstance(error, StopIteration):  # which a future refuses
                future.set_exception(RuntimeError(f"StopIteration: {error}"))
            else:
                future.set_exception(error)


class _Last(AbstractContextManager[None]):
    """Taken instead of the lock when the last job of a process is done."""

    def __init__(self, results: deque[_Result], end: Callable[[BaseException | None], NoReturn]) -> None:
        self._results = results
        self._end = end

    def __enter__(self) -> None:
        """Ends the process."""
        self._end(self._results[-1][2] if self._results else None)

    def __exit__(self, *error: object) -> None:
        """Is never reached."""
