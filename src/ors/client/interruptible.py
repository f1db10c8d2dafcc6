"""An await that another part of the client may end, with an error of its choosing."""

import asyncio
from types import TracebackType
from typing import Self

from ors.errors import ORSError

__all__ = ["Interruptible"]


class Interruptible:
    """Wraps awaits of the current task: `interrupt(error)`, from anywhere, makes them raise `error`.

    It works as `asyncio.timeout` does, by cancelling the task, so that a call needs no task of its own.
    `silent_after` is the time, if any, at which the stream that is read here is to be taken for dead.
    """

    __slots__ = ("_before", "_error", "_task", "silent_after")

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._error: ORSError | None = None
        self._before = 0
        self.silent_after: float | None = None

    def interrupt(self, error: ORSError) -> None:
        """Ends the await, if it has not ended yet, with `error`."""
        if self._task is not None and self._error is None:
            self._error = error
            self._task.cancel()

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._error, self._before = task, None, task.cancelling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        error, self._error = self._error, None
        if error is None or task is None:
            return
        try:
            # The caller's own cancellation, if there was one too, goes first.
            if task.uncancel() <= self._before and isinstance(raised, asyncio.CancelledError):
                raise error from None
        finally:
            # Its traceback has this frame, and all that was read so far in the frames below: held here, or
            # by `self`, that would stay until the garbage is collected.
            del error, raised
