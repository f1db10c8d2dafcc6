"""Sessions: one per episode, found by id, from their creation to their end.

          start           setup ends          fails            delete, expiry, shutdown
    (new) ─────▶ CREATING ──────────▶ READY ────────▶ FAILED   any of them ─────▶ DELETED
                     └────── setup raises ──────────────▲

A session that is DELETED is no longer found; its id answers 410 while its tombstone lasts.
"""

import asyncio
import enum
import logging
from collections.abc import Coroutine, Iterator
from typing import Any

from ors._protocol import Limits
from ors.errors import BadRequest, Gone, NotFound, ORSError, ServerFailed
from ors.server.access import Keys
from ors.server.admission import Admission
from ors.server.calls import Call, Calls, Outcome, failed
from ors.server.episode import Episode, SetupTimeout
from ors.server.house import House
from ors.server.observers import (
    CallEnded,
    CallFinished,
    SessionClosed,
    SessionOpened,
    SessionReady,
    ThreadLost,
)

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


class Early:
    """The calls of a session that came before its setup was over."""

    __slots__ = ("count", "line")

    def __init__(self) -> None:
        self.count = 0
        self.line = asyncio.Lock()


class Session:
    """One episode under its id, with its calls. It belongs to the API key that created it."""

    __slots__ = (
        "_early",
        "_house",
        "_opening",
        "calls",
        "created",
        "environment",
        "episode",
        "failure",
        "key",
        "limits",
        "reward",
        "seen",
        "sid",
        "state",
        "steps",
    )

    def __init__(
        self, house: House, limits: Limits, sid: str, environment: str, key: str, now: float
    ) -> None:
        self._house = house
        self.limits = limits
        self.sid = sid
        self.environment = environment
        self.key = key
        self.calls = Calls(house, self._call_finished)
        self.created = self.seen = now
        self.state = State.CREATING
        self.failure: ServerFailed | None = None
        self.episode: Episode | None = None
        self.steps = 0
        self.reward = 0.0
        self._opening: asyncio.Task[None] | None = None
        self._early: Early | None = None

    def start(self, episode: Episode, trace: str = "") -> None:
        """Sets the environment up, in the background.

        Raises:
            Gone: the session was deleted before it began.
        """
        self.check()
        self.episode = episode
        self._house.observers.tell(SessionOpened(self.sid, self.environment, self.key, trace))
        if episode.set_up_at_once():
            self._opened(None)
        else:
            self._opening = asyncio.create_task(self._open(episode))

    async def _open(self, episode: Episode) -> None:
        try:
            await episode.setup()
        except BaseException as error:  # SystemExit too: an author's constructor must not end the server
            if isinstance(error, asyncio.CancelledError) and self.state is not State.CREATING:
                raise  # by our own hand; a cancellation of the author's making is a failure
            episode.log_failed_setup(error)
            if self.state is State.CREATING:
                reason = "setup_timeout" if isinstance(error, SetupTimeout) else "environment"
                self._opened(ServerFailed(episode.failure(error), reason=reason))
                await episode.teardown()
        else:
            if self.state is State.CREATING:  # otherwise it was deleted, too late to stop the setup
                self._opened(None)
        finally:
            self._opening = None

    def _opened(self, failure: ServerFailed | None) -> None:
        self.failure = failure
        self._become(State.READY if failure is None else State.FAILED)
        seconds = asyncio.get_running_loop().time() - self.created
        reason = (failure.reason or "") if failure else ""
        self._house.observers.tell(SessionReady(self.sid, self.environment, seconds, reason))

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

    async def _ready_in_turn(self) -> None:
        # Calls that came before the setup was over go first, in their order: the moment it is over they are
        # still on their way to here, and one that comes in that moment would overtake them.
        self._early = early = self._early or Early()
        early.count += 1
        try:
            async with early.line:
                await self.ready()
        finally:
            early.count -= 1
            if not early.count:
                self._early = None

    def call(self, name: str, given: dict[str, Any]) -> Coroutine[Any, Any, Outcome]:
        """Runs a tool once the session is set up; tells how it went."""
        if self.state is State.READY and self._early is None and self.episode is not None:
            return self.episode.call(name, given)
        return self._call_early(name, given)

    async def _call_early(self, name: str, given: dict[str, Any]) -> Outcome:
        try:
            await self._ready_in_turn()
        except ORSError as error:
            return failed(str(error), error.reason or "")
        assert self.episode is not None
        return await self.episode.call(name, given)

    def _break(self, why: str, tool: str) -> None:
        self._become(State.FAILED)
        self.failure = ServerFailed(why, reason="tool_timeout")
        lost = self._house.threads.lost
        self._house.observers.tell(ThreadLost(self.sid, self.environment, tool, lost))

    def _call_finished(self, call: Call, outcome: Outcome) -> None:
        if outcome.reason == "tool_timeout" and self.state is State.READY:
            assert self.episode is not None
            if self.episode.broken:
                self._break(self.episode.broken, call.tool)
        self.seen = call.finished_at  # a call in flight counts, up to its end
        self.steps += 1
        if outcome.reward is not None:
            self.reward += outcome.reward
        labels = (self.environment, call.tool, outcome.kind, outcome.reason)
        self._house.calls.add(labels, call.seconds, len(outcome.events))
        observers = self._house.observers
        if observers.all or outcome.kind != "ok" or log.isEnabledFor(logging.DEBUG):
            observers.tell(
                CallFinished(
                    self.sid,
                    self.environment,
                    call.tool,
                    call.id,
                    outcome.kind,
                    outcome.reason,
                    call.seconds,
                    len(outcome.events),
                    outcome.reward,
                    outcome.finished,
                    call.trace,
                )
            )
        if self.sid in observers.watched:
            events = call.head + outcome.events
            observers.show(CallEnded(self.sid, call.tool, call.id, call.seconds, events))

    def check(self) -> None:
        """Raises what stands in the way of a request to this session."""
        if self.failure is not None:
            raise ServerFailed(str(self.failure), reason=self.failure.reason)
        if self.state is State.DELETED:
            raise Gone("Session deleted", reason="deleted")

    def end(self, message: str, reason: str) -> asyncio.Task[None] | None:
        """Stops what runs, and tears down; gives what there is to wait for, if anything."""
        if self.state is State.CREATING and self._opening is not None:
            self._opening.cancel()
        self._become(State.DELETED)
        self.failure = None
        stopped = self.calls.stop(message, reason)
        if self._opening is None and (self.episode is None or not self.episode.needs_teardown):
            self.calls.close()
            self._closed(reason, 0.0)
            return None
        return asyncio.create_task(self._end(reason, stopped))

    async def _end(self, reason: str, stopped: list[asyncio.Task[None]]) -> None:
        # What was told to stop may clean up first, but not for ever.
        waiting = [task for task in (*stopped, self._opening) if task is not None]
        if waiting:
            await asyncio.wait(waiting, timeout=self.limits.teardown_seconds)
        began = asyncio.get_running_loop().time()
        if self.episode is not None:
            await self.episode.teardown()
        self.calls.close()
        self._closed(reason, asyncio.get_running_loop().time() - began)

    def _closed(self, reason: str, teardown_seconds: float) -> None:
        if self.episode is not None:
            seconds = asyncio.get_running_loop().time() - self.created
            closed = SessionClosed(self.sid, self.environment, self.key, reason, seconds, teardown_seconds)
            self._house.observers.tell(closed)


class Sessions:
    """All sessions of a server, and the tombstones of those that ended."""

    def __init__(self, house: House, keys: Keys | None = None) -> None:
        self._house = house
        self._limits = house.limits
        self.admission = Admission(house.limits, keys or Keys())
        self._live: dict[str, Session] = {}
        self._ended: dict[str, tuple[float, str]] = {}  # until when, and why
        self._ending: dict[str, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._live.values())

    def reserve(self, sid: str, environment: str, now: float, limits: Limits, key: str = "") -> Session:
        """A new session under that id, which nobody else can have from now on.

        Raises:
            BadRequest: the id is taken.
        """
        if sid in self._live:
            raise BadRequest("Session already exists")
        self._ended.pop(sid, None)
        session = self._live[sid] = Session(self._house, limits, sid, environment, key, now)
        return session

    def release(self, session: Session) -> None:
        """Undoes a reservation that came to nothing."""
        if self._live.get(session.sid) is session:
            del self._live[session.sid]
            self.admission.leave(session.environment, session.key)

    def find(self, sid: str, now: float, key: str = "") -> Session:
        """The session of that id, which counts as activity.

        Raises:
            Gone: it has ended.
            NotFound: there is none, or it belongs to another key.
        """
        session = self._live.get(sid)
        if session is None or session.key != key:
            raise self._absent(sid, now)
        session.seen = now
        return session

    def seen(self, sid: str, now: float, key: str = "") -> Session:
        """The session of that id, for someone who only looks.

        Raises:
            Gone, NotFound: as `find` does.
        """
        session = self._live.get(sid)
        if session is None or session.key != key:
            raise self._absent(sid, now)
        return session

    def __contains__(self, sid: str) -> bool:
        return sid in self._live

    def standing(self, sid: str, now: float) -> int:
        """2 for a session that lives here, 1 for one that has ended here of late, 0 for any other."""
        return 2 if sid in self._live else int(self._ended.get(sid, (now, ""))[0] > now)

    def touch(self, sid: str, now: float, key: str = "") -> None:
        """Counts as activity of that session, if there is one."""
        session = self._live.get(sid)
        if session is not None and session.key == key:
            session.seen = now

    def delete(self, sid: str, now: float, key: str = "") -> asyncio.Task[None] | None:
        """Ends a session; gives its teardown, if there is one to wait for. The second time is fine too.

        Raises:
            NotFound: there is none of that id, and has not been one of late.
        """
        session = self._live.get(sid)
        if session is not None and session.key == key:
            self._end(session, "Session deleted", "deleted", now)
        elif isinstance(absent := self._absent(sid, now), NotFound):
            raise absent
        return self._ending.get(sid)

    def reap(self, now: float) -> None:
        """Ends what has been idle or alive for too long; lets go of old tombstones, results and memory."""
        for session in list(self._live.values()):
            limits = session.limits
            if limits.life_seconds is not None and session.created + limits.life_seconds < now:
                text = f"Session expired: it may live {limits.life_seconds:g} s"
                self._end(session, text, "life", now)
            elif session.seen + limits.idle_seconds < now:
                if session.calls.running:
                    session.seen = now  # a call in flight counts
                else:
                    self._end(session, "Session expired", "expired", now)
        for sid, (until, _) in list(self._ended.items()):
            if until > now:
                break
            del self._ended[sid]
        self._house.kept.reap(now)
        self._house.memory.give_back(now)

    async def drain(self) -> None:
        """Waits until every call that runs now is done."""
        tasks = [task for session in self._live.values() for task in session.calls.tasks()]
        if tasks:
            await asyncio.wait(tasks)

    def stop_calls(self, message: str, reason: str) -> None:
        """Ends the stream of every running call with an `error` event."""
        for session in self._live.values():
            session.calls.stop(message, reason)

    async def close(self, now: float, message: str) -> None:
        """Ends every session."""
        for session in list(self._live.values()):
            self._end(session, message, "shutdown", now)
        while self._ending:
            await asyncio.wait(set(self._ending.values()))

    def _absent(self, sid: str, now: float) -> ORSError:
        until, reason = self._ended.get(sid, (now, ""))
        if sid in self._live or until <= now:
            if self._house.identity.lost(sid):
                return Gone("Session lost: its server was restarted", reason="worker_lost")
            return NotFound("Session not found")
        return Gone("Session expired" if reason in ("expired", "life") else "Session deleted", reason=reason)

    def _end(self, session: Session, message: str, reason: str, now: float) -> None:
        sid = session.sid
        del self._live[sid]
        self._bury(sid, now, reason)
        task = session.end(message, reason)
        self.admission.leave(session.environment, session.key)
        if task is not None:
            self._ending[sid] = task
            task.add_done_callback(lambda done: self._ended_now(sid, done))

    def _ended_now(self, sid: str, task: asyncio.Task[None]) -> None:
        if self._ending.get(sid) is task:
            del self._ending[sid]

    def _bury(self, sid: str, now: float, reason: str) -> None:
        self._ended.pop(sid, None)
        self._ended[sid] = (now + self._limits.tombstone_seconds, reason)
        if len(self._ended) > self._limits.tombstones:
            del self._ended[next(iter(self._ended))]
