"""Threads for authors' sync code, also that of `asyncio.to_thread`: started as needed, and reused."""

import asyncio
import contextvars
import sys
import sysconfig
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple[asyncio.Future[Any], contextvars.Context, Callable[..., Any], tuple[Any, ...]]
_Result = tuple[asyncio.Future[Any], Any, BaseException | None]

IDLE_SECONDS = 30.0
AGAIN_SECONDS = 0.1
_OURS = str(Path(__file__).parents[1])
_STDLIB = sysconfig.get_path("stdlib")


class NoThread(RuntimeError):
    """No thread could be started for a job, which will never run."""

    def __init__(self, why: BaseException) -> None:
        super().__init__(
            f"the server could not start another thread ({why}): raise its limit of threads or of memory, "
            "or let it run fewer calls at once"
        )


def failure_reason(error: BaseException) -> str:
    """The reason to report: "environment", or "limit" if no thread could be started."""
    return "limit" if isinstance(error, NoThread) else "environment"


class Threads:
    """Runs functions in threads, for one event loop.

    Their number has no limit: a tool that hangs must not delay the tools of other sessions. Threads are
    daemons, so one that hangs does not keep the process alive. Results return in batches: one wake-up of the
    loop takes all that are ready (2 µs a call with 32 running, instead of 13 with run_in_executor).
    """

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop; finding the running one takes a system call in CPython 3.11."""
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._results: deque[_Result] = deque()
        self._lock = threading.Lock()
        self._free = 0  # idle threads minus waiting jobs
        self._waking = False
        self._number = 0
        self._running: set[asyncio.Future[Any]] = set()
        self._overs: dict[asyncio.Future[Any], asyncio.Future[None]] = {}
        self._all: set[threading.Thread] = set()

    def run(self, fn: Callable[..., Any], /, *args: Any) -> asyncio.Future[Any]:
        """Runs `fn(*args)` in a thread, unless the future is cancelled before. Raises NoThread."""
        loop = self.loop or asyncio.get_running_loop()
        future = loop.create_future()
        with self._lock:
            self._free -= 1
            short = self._free < 0
            if short:
                self._free += 1
                self._number += 1
        if short:  # the thread first: a refused job must not stay in the queue
            self._start(loop)
        self._running.add(future)
        self._jobs.put((future, contextvars.copy_context(), fn, args))
        return future

    async def run_at_last(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Runs `fn(*args)`, however long no thread can be started: an episode must release its resources."""
        while True:
            with suppress(NoThread):
                return await self.run(fn, *args)
            await asyncio.sleep(AGAIN_SECONDS)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        name = f"ors-tool-{self._number}"
        try:
            threading.Thread(target=self._work, args=(loop,), name=name, daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            raise NoThread(error) from error

    def over(self, future: asyncio.Future[Any]) -> asyncio.Future[None]:
        """A future that is done when the job has really ended, even if its own future was cancelled."""
        over: asyncio.Future[None] = future.get_loop().create_future()
        if future in self._running:
            self._overs[future] = over
        else:
            over.set_result(None)
        return over

    @property
    def lost(self) -> int:
        """The number of threads that run a cancelled job, which cannot be stopped."""
        return sum(future.cancelled() for future in list(self._running))

    def busy(self) -> list[str]:
        frames = sys._current_frames()
        found = [(thread, frames.get(thread.ident or 0)) for thread in list(self._all)]
        idle = Threads._work.__code__
        return [
            describe_thread(thread, frame) for thread, frame in found if frame and frame.f_code is not idle
        ]

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        self._all.add(threading.current_thread())
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._free <= 0:  # a job is about to come
                        continue
                    self._free -= 1
                self._all.discard(threading.current_thread())
                return
            self._finish(loop, job)
            del job  # an idle thread must not keep anything of its last job alive
            with self._lock:
                self._free += 1

    def _finish(self, loop: asyncio.AbstractEventLoop, job: _Job) -> None:
        future, context, fn, args = job
        try:
            # A job that was cancelled before its start must not run.
            result = None if future.cancelled() else context.run(fn, *args)
            self._results.append((future, result, None))
        except BaseException as error:  # also SystemExit: a tool must not end the server
            self._results.append((future, None, error))
        del job, future, context, fn, args  # the error has this frame in its traceback: no cycle
        with self._lock:
            wake, self._waking = not self._waking, True
        if wake:
            try:
                loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop has closed
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
            elif isinstance(error, StopIteration):  # futures refuse it
                future.set_exception(RuntimeError(f"StopIteration: {error}"))
            else:
                future.set_exception(error)


class Executor(ThreadPoolExecutor):
    """Our threads, as the event loop's default executor.

    asyncio's own has six threads on two cores, so six jobs that hang would block those of every session.
    It also waits for all its threads when the loop ends, however long they take.
    """

    def __init__(self, threads: Threads) -> None:
        super().__init__(1)  # it never starts a thread of its own
        self._ors_threads = threads

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        job = self._ors_threads.run(partial(fn, *args, **kwargs))
        job.add_done_callback(partial(_copy_result, future))
        future.add_done_callback(partial(_cancel_job, job))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Waits for nothing: the threads are daemons."""


def _copy_result(future: Future[Any], job: asyncio.Future[Any]) -> None:
    if job.cancelled() or future.cancelled():
        return
    error = job.exception()
    if error is None:
        future.set_result(job.result())
    else:
        future.set_exception(error)


def _cancel_job(job: asyncio.Future[Any], future: Future[Any]) -> None:
    if future.cancelled():  # nobody waits for it, so its thread counts as lost
        job.cancel()


def describe_thread(thread: threading.Thread, frame: FrameType) -> str:
    """The name of a thread and the line that it runs."""
    # The author's own line says more than a lock deep in a library.
    place: FrameType | None = frame
    while place is not None and place.f_code.co_filename.startswith((_OURS, _STDLIB)):
        place = place.f_back
    place = place or frame
    code = place.f_code
    return f"thread {thread.name} in {code.co_name} ({code.co_filename}:{place.f_lineno})"
