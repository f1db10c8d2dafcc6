"""Where `asyncio.to_thread` and `run_in_executor(None, …)` of authors' code run."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from ors.server.episodes.threads import Threads

T = TypeVar("T")


class Executor(ThreadPoolExecutor):
    """Our threads, as the event loop's default executor.

    asyncio's own has six threads on two cores, so six jobs that hang would hold up those of every session;
    and it waits for all of its threads when the loop ends, however long they take.
    """

    def __init__(self, threads: Threads) -> None:
        super().__init__(1)  # of its own it never starts one
        self._ours = threads

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Starts `fn` in a thread, on the event loop's behalf."""
        future: Future[T] = Future()
        job = self._ours.run(partial(fn, *args, **kwargs))
        job.add_done_callback(partial(_tell, future))
        future.add_done_callback(partial(_give_up, job))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Waits for nothing: the threads are daemons."""


def _tell(future: Future[Any], job: asyncio.Future[Any]) -> None:
    if job.cancelled() or future.cancelled():
        return
    error = job.exception()
    if error is None:
        future.set_result(job.result())
    else:
        future.set_exception(error)


def _give_up(job: asyncio.Future[Any], future: Future[Any]) -> None:
    if future.cancelled():  # nobody waits for it any more, so its thread counts as lost
        job.cancel()
