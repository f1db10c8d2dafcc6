"""SessionRecorder: writes every session of a server into a run, by a thread behind a bounded queue."""

import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from ors.recording.session import SeenSession, record
from ors.rollouts.records import RunError, RunInfo, RunWriter
from ors.rollouts.records.info import read_info
from ors.server.observe.events import EpisodeForked, EpisodeStarted, SessionEnded, Watched

log = logging.getLogger("ors.server")

MOST_BYTES = 256 * 2**20
MOST_WRITERS = 4096
"""Processes that write to one run at once."""
CLOSE_SECONDS = 4.0
"""A server waits a little longer for its observers to close."""

Write = Callable[[], None]
"""Writes one record."""


class SessionRecorder:
    """Records sessions into a run. Several processes may record into one folder.

    Tasks that are played by index are recorded without their private fields, unless `keep_private`.

    Raises:
        RunError: the folder has another kind of run.
        OSError: the folder cannot be written.
    """

    def __init__(
        self, folder: Path, info: RunInfo, *, keep_private: bool = False, most_bytes: int = MOST_BYTES
    ) -> None:
        self._folder = folder
        self._keep_private = keep_private
        self._info = info
        self._sessions: dict[str, SeenSession] = {}
        self._writer: RunWriter | None = None
        self._identified: set[str] = set()
        self._queue = WriteQueue(str(folder), most_bytes)
        _part(folder, info).close()  # reports a folder that cannot be written
        if read_info(folder).kind != "sessions":
            raise RunError(f"{folder} has a run of another kind: choose another folder to record sessions")

    def show(self, event: Watched) -> None:
        """Collects an event of a session. With the last one, the session is written."""
        if isinstance(event, EpisodeStarted):
            task = event.private_task if self._keep_private else event.task
            self._begin(SeenSession(event._replace(task=task)))
            return
        if isinstance(event, EpisodeForked):
            first = self._sessions.get(event.first)
            self._begin(None if first is None else first.fork(event.sid))
            return
        session = self._sessions.get(event.sid)
        if session is None:
            return  # it was dropped
        if isinstance(event, SessionEnded):
            del self._sessions[event.sid]
            self._queue.put(partial(self._write, session, event, session.age), session.bytes)
            return
        size = session.see(event)
        if not self._queue.take(size):
            del self._sessions[event.sid]
            self._queue.drop(session.bytes - size)

    def _begin(self, session: SeenSession | None) -> None:
        if session is not None and self._queue.take(session.bytes):
            self._sessions[session.start.sid] = session
        else:
            self._queue.drop()

    def counts(self) -> tuple[int, int]:
        return self._queue.written, self._queue.dropped

    def close(self) -> None:
        """Writes what is left, and logs how much was written. May block."""
        is_done = self._queue.close()
        if is_done and self._writer is not None:
            self._writer.close()
        written, dropped = self.counts()
        if written or dropped:
            lost = f"; {dropped} were dropped" if dropped else ""
            log.log(logging.WARNING if dropped else logging.INFO, "%d episodes recorded%s", written, lost)

    def _write(self, session: SeenSession, end: SessionEnded, seconds: float) -> None:
        if self._writer is None:
            self._writer = _part(self._folder, self._info)
        if (name := session.start.environment) not in self._identified:
            self._writer.identify(name, session.start.code())
            self._identified.add(name)
        self._writer.append(record(session, end, seconds))


def _part(folder: Path, info: RunInfo) -> RunWriter:
    """Opens the first part of a run that no other process writes."""
    for number in range(MOST_WRITERS):
        try:
            return RunWriter.create(folder, info, part=str(number) if number else "", append=True)
        except RunError:
            if number == MOST_WRITERS - 1:
                raise
    raise AssertionError("there is at least one part")


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

    def drop(self, size: int = 0) -> None:
        """Counts a record that is dropped since there is no memory for it, and gives back what it took."""
        self._taken -= size
        self._refused += 1
        if self._refused == 1:
            mega = self._most_bytes // 2**20
            log.warning("episodes waiting to be recorded take over %d MB: further ones are dropped", mega)

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
            write, size = job
            try:
                write()
                self.written += 1
                self._failing = False
            except OSError as error:
                self._lost += 1
                if not self._failing:
                    log.warning("records cannot be written to %s: %s", self._where, error.strerror)
                self._failing = True
            except Exception:  # the next record can be written all the same
                self._lost += 1
                log.exception("a record could not be written to %s", self._where)
            self._given_back += size
