"""Runs `asyncio.to_thread` and `run_in_executor(None, …)` of authors' code."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from ors.server.episodes.threads import Threads

T = TypeVar("T")


class Executor(ThreadPoolExecutor):
    """Our threads, as the event loop's default executor.

    asyncio's own has six threads on two cores, so six jobs that hang would block those of every session.
    It also waits for all its threads when the loop ends, however long they take.
    """

    def __init__(self, threads: Threads) -> None:
        super().__init__(1)  # it never starts a thread of its own
        self._ors_threads = threads

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Starts `fn` in one of our threads."""
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
