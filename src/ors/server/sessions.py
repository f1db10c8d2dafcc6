"""Sessions: one per episode, found by id, from their creation to their end.

          start           setup ends          fails            delete, expiry, shutdown
    (new) ─────▶ CREATING ──────────▶ READY ────────▶ FAILED   any of them ─────▶ DELETED
                     └────── setup raises ──────────────▲

A session that is DELETED is no longer found; its id answers 410 while its tombstone lasts.
"""

import asyncio
import enum
import logging
from collections.abc import Iterator
from typing import Any

from ors._protocol import Limits, error_event
from ors.errors import BadRequest, Gone, NotFound, ORSError, ServerFailed
from ors.server.calls import Calls
from ors.server.episode import Episode
from ors.server.kept import Kept

log = logging.getLogger("ors.server")


class State(enum.Enum):
    """Where a session stands."""

    CREATING = "creating"
    READY = "ready"
    FAILED = "failed"
    DELETED = "deleted"


TRANSITIONS: dict[State, frozenset[State]] = {
    State.CREATING: frozenset({State.READY, State.FAILED, State.DELETED}),
    State.READY: frozenset({State.FAILED, State.DELETED}),
    State.FAILED: frozenset({State.DELETED}),
    State.DELETED: frozenset(),
}


class Session:
    """One episode under its id, with its calls."""

    __slots__ = ("_opening", "calls", "environment", "episode", "failure", "seen", "sid", "state")

    def __init__(self, sid: str, environment: str, calls: Calls, now: float) -> None:
        self.sid = sid
        self.environment = environment
        self.calls = calls
        self.seen = now
        self.state = State.CREATING
        self.failure = ""
        self.episode: Episode | None = None
        self._opening: asyncio.Task[None] | None = None

    def start(self, episode: Episode) -> None:
        """Sets the environment up, in the background.

        Raises:
            Gone: the session was deleted before it began.
        """
        self.check()
        self.episode = episode
        if episode.set_up_at_once():
            self._become(State.READY)
            return
        self._opening = asyncio.create_task(self._open(episode))

    async def _open(self, episode: Episode) -> None:
        try:
            await episode.setup()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # SystemExit too: an author's constructor must not end the server
            episode.log_failed_setup(error)
            if self.state is State.CREATING:
                self._become(State.FAILED)
                self.failure = episode.failure(error)
                await episode.teardown()
        else:
            if self.state is State.CREATING:  # otherwise it was deleted, too late to stop the setup
                self._become(State.READY)
        finally:
            self._opening = None

    def _become(self, state: State) -> None:
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"a session that is {self.state.value} cannot become {state.value}")
        self.state = state

    async def ready(self) -> Episode:
        """The episode, once it is set up.

        Raises:
            Gone: the session has ended meanwhile.
            ServerFailed: the environment could not be set up.
        """
        if self.state is State.CREATING and self._opening is not None:
            await asyncio.wait({self._opening})
        self.check()
        if self.episode is None:
            raise NotFound("Session not found")
        return self.episode

    async def call(self, name: str, given: dict[str, Any]) -> bytes:
        """Runs a tool once the session is set up; gives the events that tell how it went."""
        if self.state is not State.READY:
            try:
                await self.ready()
            except ORSError as error:
                return error_event(str(error))
        assert self.episode is not None
        events = await self.episode.call(name, given)
        if self.episode.broken and self.state is State.READY:
            self._become(State.FAILED)
            self.failure = self.episode.broken
        return events

    def check(self) -> None:
        """Raises what stands in the way of a request to this session."""
        if self.state is State.FAILED:
            raise ServerFailed(self.failure)
        if self.state is State.DELETED:
            raise Gone("Session deleted")

    def end(self, message: str) -> asyncio.Task[None] | None:
        """Stops what runs, and tears down; gives what there is to wait for, if anything."""
        if self.state is State.CREATING and self._opening is not None:
            self._opening.cancel()
        self._become(State.DELETED)
        self.calls.stop(message)
        if self._opening is None and (self.episode is None or not self.episode.needs_teardown):
            self.calls.close()
            return None
        return asyncio.create_task(self._end())

    async def _end(self) -> None:
        if self._opening is not None:
            await asyncio.wait({self._opening})
        if self.episode is not None:
            await self.episode.teardown()
        self.calls.close()


class Sessions:
    """All sessions of a server, and the tombstones of those that ended."""

    def __init__(self, limits: Limits, kept: Kept) -> None:
        self._limits = limits
        self._kept = kept
        self._live: dict[str, Session] = {}
        self._ended: dict[str, float] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._live.values())

    def reserve(self, sid: str, environment: str, now: float) -> Session:
        """A new session under that id, which nobody else can have from now on.

        Raises:
            BadRequest: the id is taken.
        """
        if sid in self._live:
            raise BadRequest("Session already exists")
        self._ended.pop(sid, None)
        session = self._live[sid] = Session(sid, environment, Calls(self._kept), now)
        return session

    def release(self, session: Session) -> None:
        """Undoes a reservation that came to nothing."""
        if self._live.get(session.sid) is session:
            del self._live[session.sid]

    def find(self, sid: str, now: float) -> Session:
        """The session of that id, which counts as activity.

        Raises:
            Gone: it has ended.
            NotFound: there is none.
        """
        session = self._live.get(sid)
        if session is None:
            raise self._absent(sid, now)
        session.seen = now
        return session

    def touch(self, sid: str, now: float) -> None:
        """Counts as activity of that session, if there is one."""
        session = self._live.get(sid)
        if session is not None:
            session.seen = now

    def delete(self, sid: str, now: float) -> asyncio.Task[None] | None:
        """Ends a session; gives its teardown, if there is one to wait for. The second time is fine too.

        Raises:
            NotFound: there is none of that id, and has not been one of late.
        """
        session = self._live.get(sid)
        if session is not None:
            self._end(session, "Session deleted", now)
        elif isinstance(absent := self._absent(sid, now), NotFound):
            raise absent
        return self._ending.get(sid)

    def reap(self, now: float) -> None:
        """Ends what has been idle for too long, and forgets old tombstones and results."""
        oldest = now - self._limits.idle_seconds
        for session in [s for s in self._live.values() if s.seen < oldest]:
            if session.calls.running:
                session.seen = now  # a call in flight counts
            else:
                log.info("session %s of %s expired", session.sid, session.environment)
                self._end(session, "Session expired", now)
        for sid, until in list(self._ended.items()):
            if until > now:
                break
            del self._ended[sid]
        self._kept.reap(now)

    async def drain(self) -> None:
        """Waits until every call that runs now is done."""
        tasks = [task for session in self._live.values() for task in session.calls.tasks()]
        if tasks:
            await asyncio.wait(tasks)

    def stop_calls(self, message: str) -> None:
        """Ends the stream of every running call with an `error` event."""
        for session in self._live.values():
            session.calls.stop(message)

    async def close(self, now: float, message: str) -> None:
        """Ends every session."""
        for session in list(self._live.values()):
            self._end(session, message, now)
        while self._ending:
            await asyncio.wait(set(self._ending.values()))

    def _absent(self, sid: str, now: float) -> ORSError:
        if self._ended.get(sid, now) > now:
            return Gone("Session deleted")
        return NotFound("Session not found")

    def _end(self, session: Session, message: str, now: float) -> None:
        sid = session.sid
        del self._live[sid]
        self._bury(sid, now)
        task = session.end(message)
        if task is not None:
            self._ending[sid] = task
            task.add_done_callback(lambda done: self._ended_now(sid, done))

    def _ended_now(self, sid: str, task: asyncio.Task[None]) -> None:
        if self._ending.get(sid) is task:
            del self._ending[sid]

    def _bury(self, sid: str, now: float) -> None:
        self._ended.pop(sid, None)
        self._ended[sid] = now + self._limits.tombstone_seconds
        if len(self._ended) > self._limits.tombstones:
            del self._ended[next(iter(self._ended))]
