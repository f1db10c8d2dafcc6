"""Interrupting an await of another task with an error."""

import asyncio
from types import TracebackType
from typing import Self

from ors.errors import ORSError


class Interruptible:
    """Wraps awaits of the current task: `interrupt(error)`, from any task, makes them raise `error`.

    Cancels the task, as `asyncio.timeout` does, so that a call needs no task of its own.
    `silent_after` is the loop time after which the stream that is read here counts as dead; None is never.
    """

    __slots__ = ("_cancelling_before", "_error", "_task", "silent_after")

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._error: ORSError | None = None
        self._cancelling_before = 0
        self.silent_after: float | None = None

    def interrupt(self, error: ORSError) -> None:
        """Makes the await raise `error`, unless it has ended or was interrupted already."""
        if self._task is not None and self._error is None:
            self._error = error
            self._task.cancel()

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._error, self._cancelling_before = task, None, task.cancelling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        error, self._error = self._error, None
        if error is None or task is None:
            return
        try:
            # If the caller cancelled the task too, that cancellation wins.
            if task.uncancel() <= self._cancelling_before and isinstance(raised, asyncio.CancelledError):
                raise error from None
        finally:
            # The traceback refers to this frame, and to all data in the frames below. References from here to
            # the error, or to the task that ends with it, would keep that data until garbage collection.
            del error, raised, task
