"""SessionRecorder: writes every session of a server, and every rollout that is logged there, into runs."""

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from ors.errors import Unavailable
from ors.recording.assembly import record
from ors.recording.open_rollouts import OpenRollouts
from ors.recording.rollout_log import REWARD as LOGGED_REWARD
from ors.recording.rollout_log import Event, assembled, by_rollout
from ors.recording.session import SeenSession
from ors.recording.write_queue import WriteQueue
from ors.rollouts.records import RunError, RunInfo, RunWriter
from ors.rollouts.records.info import read_info
from ors.rollouts.records.reader import LOGGED
from ors.server.observe.events import EpisodeForked, EpisodeStarted, SessionEnded, Watched

log = logging.getLogger("ors.server")

MOST_BYTES = 256 * 2**20
MOST_WRITERS = 4096
"""Processes that write to one run at once."""
OPEN = "open"


class SessionRecorder:
    """Records sessions into a run. Rollouts that clients log become runs of their own below `rollouts/`.

    Several processes may record into one folder. Those that others end, such as workers, are not `alone`:
    rollouts without an end are left to the process that ends last.

    Raises:
        RunError: the folder has another kind of run.
        OSError: the folder cannot be written.
    """

    def __init__(
        self, folder: Path, info: RunInfo, *, alone: bool = True, most_bytes: int = MOST_BYTES
    ) -> None:
        self._folder = folder
        self._info = info
        self._alone = alone
        self._sessions: dict[str, SeenSession] = {}
        self._writer: RunWriter | None = None
        self._rollouts = OpenRollouts(folder / OPEN, self._write_rollout)
        self._queue = WriteQueue(str(folder), most_bytes, self._rollouts.sweep)
        _part(folder, info).close()  # reports a folder that cannot be written
        if read_info(folder).kind != "sessions":
            raise RunError(f"{folder} has a run of another kind: choose another folder to record sessions")

    def show(self, event: Watched) -> None:
        """Collects an event of a session. With the last one, the session is written."""
        if isinstance(event, EpisodeStarted):
            self._begin(SeenSession(event))
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
        before = session.bytes
        if not self._queue.take(session.see(event)):
            del self._sessions[event.sid]
            self._queue.give_back(before)
            self._queue.drop()

    def _begin(self, session: SeenSession | None) -> None:
        if session is not None and self._queue.take(session.bytes):
            self._sessions[session.start.sid] = session
        else:
            self._queue.drop()

    def log(self, events: bytes) -> None:
        """Takes the body of a request of OpenReward's rollout log.

        Raises:
            BadRequest: it is not valid.
            Unavailable: too much waits to be written; the SDK tries again.
        """
        found = by_rollout(events)
        if not self._queue.take(len(events)):
            raise Unavailable("Too many records wait to be written", retry_after=1, reason="limit")
        self._queue.put(partial(self._log, found), len(events))

    def counts(self) -> tuple[int, int]:
        """The number of records that were written, and of those that were dropped."""
        return self._queue.written, self._queue.dropped

    def close(self) -> None:
        """Writes what is left, and logs how much was written. May block."""
        is_done = self._queue.close()
        if is_done and self._alone:
            self._queue.attempt(partial(self._rollouts.sweep, everything=True), 0)
        if is_done and self._writer is not None:
            self._writer.close()
        written, dropped = self.counts()
        if written or dropped:
            lost = f"; {dropped} were dropped" if dropped else ""
            log.log(logging.WARNING if dropped else logging.INFO, "%d episodes recorded%s", written, lost)

    # ── In the thread of the queue ───────────────────────────────────────────────────────────────

    def _write(self, session: SeenSession, end: SessionEnded, seconds: float) -> int:
        if self._writer is None:
            self._writer = _part(self._folder, self._info)
        self._writer.append(record(session, end, seconds))
        return 1

    def _log(self, found: Mapping[str, Sequence[Event]]) -> int:
        for rollout, events in found.items():
            self._rollouts.add(rollout, events)
        return 0

    def _write_rollout(self, rollout: str, events: Sequence[Event]) -> None:
        logged = assembled(rollout, events)
        config = {"run_name": logged.run, "run_info": logged.run_info, "reward": LOGGED_REWARD}
        info = RunInfo.gathered(config, kind="sessions")
        with _part(self._folder / LOGGED / _file_name(logged.run), info) as writer:
            writer.append(logged.record)


def _part(folder: Path, info: RunInfo) -> RunWriter:
    """Opens the first part of a run that no other process writes."""
    for number in range(MOST_WRITERS):
        try:
            return RunWriter.create(folder, info, part=str(number) if number else "", append=True)
        except RunError:
            if number == MOST_WRITERS - 1:
                raise
    raise AssertionError("there is at least one part")


def _file_name(run: str) -> str:
    """The name of a run as the name of its folder."""
    name = re.sub(r"[^\w.-]+", "-", run).strip(".-")[:100]
    return name if name == run else f"{name}-{hashlib.sha256(run.encode()).hexdigest()[:8]}".lstrip("-")
