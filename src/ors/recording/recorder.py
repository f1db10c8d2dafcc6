"""SessionRecorder: writes every session of a server into a run."""

import logging
from functools import partial
from pathlib import Path

from ors.recording.assembly import record
from ors.recording.session import SeenSession
from ors.recording.write_queue import WriteQueue
from ors.rollouts.records import RunError, RunInfo, RunWriter
from ors.rollouts.records.info import read_info
from ors.server.observe.events import EpisodeForked, EpisodeStarted, SessionEnded, Watched

log = logging.getLogger("ors.server")

MOST_BYTES = 256 * 2**20
MOST_WRITERS = 4096
"""Processes that write to one run at once."""


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
            self._queue.put(partial(self._write, session, event, session.age), session.release())
            return
        size = session.see(event)
        if not self._queue.take(size):
            del self._sessions[event.sid]
            self._queue.give_back(session.release() - size)
            self._queue.drop()

    def _begin(self, session: SeenSession | None) -> None:
        if session is not None and self._queue.take(session.bytes):
            self._sessions[session.start.sid] = session
            return
        if session is not None:
            session.release()  # what it shares stays with the session that it was forked from
        self._queue.drop()

    def counts(self) -> tuple[int, int]:
        """The number of records that were written, and of those that were dropped."""
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
        """Runs in the thread of the queue."""
        if self._writer is None:
            self._writer = _part(self._folder, self._info)
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
