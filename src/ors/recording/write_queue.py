"""A thread that writes records, and the bounded queue before it."""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

log = logging.getLogger("ors.server")

CLOSE_SECONDS = 4.0
"""A server waits a little longer for its observers to close."""

Write = Callable[[], None]
"""Writes one record."""


class WriteQueue:
    """Writes in a thread of its own. Nobody ever waits for it.

    What is collected and what waits to be written takes at most `most_bytes` of memory. The thread starts
    with the first write, since a process may be forked before.
    """

    def __init__(self, where: str, most_bytes: int) -> None:
        self._where = where
        self._most_bytes = most_bytes
        self._queue: SimpleQueue[tuple[Write, int] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        # Each number is changed by one thread only: the event loop's, or the writer's.
        self._taken = 0
        self._given_back = 0
        self._refused = 0
        self._lost = 0
        self._full = False
        self._failing = False
        self.written = 0
        """Records that were written."""

    @property
    def dropped(self) -> int:
        """Records that were not written: for want of memory, or since writing failed."""
        return self._refused + self._lost

    def take(self, size: int) -> bool:
        """Takes memory for what will be written; returns whether there is enough."""
        if self._taken - self._given_back + size > self._most_bytes:
            return False
        self._taken += size
        return True

    def give_back(self, size: int) -> None:
        """Gives back memory of what will not be written."""
        self._taken -= size

    def drop(self) -> None:
        """Counts a record that is dropped since there is no memory for it."""
        self._refused += 1
        if not self._full:
            self._full = True
            mega = self._most_bytes // 2**20
            log.warning("episodes that wait to be recorded take over %d MB: further ones are dropped", mega)

    def put(self, write: Write, size: int) -> None:
        """Lets the thread write a record; then `size` bytes of memory are free again."""
        self._queue.put((write, size))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ors-recorder", daemon=True)
            self._thread.start()

    def close(self) -> bool:
        """Waits until everything is written, for a few seconds; returns whether it is."""
        if self._thread is None:
            return True
        self._queue.put(None)
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            self._refused += self._queue.qsize()
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            self._attempt(job[0])
            self._given_back += job[1]

    def _attempt(self, write: Write) -> None:
        """Writes a record. A failure is logged, and loses it."""
        try:
            write()
        except OSError as error:
            self._lost += 1
            if not self._failing:
                log.warning("records cannot be written to %s: %s", self._where, error.strerror)
            self._failing = True
        except Exception:  # the next record can be written all the same
            self._lost += 1
            log.exception("a record could not be written to %s", self._where)
        else:
            self.written += 1
            self._failing = False
