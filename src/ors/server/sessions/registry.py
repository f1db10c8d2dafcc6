"""All sessions of a server: finds them by id, and ends them when they expire.

The id of an ended session is answered with 410 as long as its tombstone lasts.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator

from ors.errors import BadRequest, Gone, NotFound, ORSError
from ors.limits import TOMBSTONE_SECONDS, TOMBSTONES, Limits
from ors.server.episodes.episode import Episode
from ors.server.observe.events import EpisodeForked
from ors.server.sessions.admission import Admission, Keys
from ors.server.sessions.calls import Fork, Forks
from ors.server.sessions.session import CREATING, ServerSession
from ors.server.sessions.shared import Identity, Shared

COMING_BACK_SECONDS = 0.05
"""How often a draining server checks whether all results were delivered."""
ENDED = {
    "expired": "Session expired",
    "life": "Session expired",
    "shutdown": "Session ended: the server is shutting down",
}


_Tombstone = tuple[float, str, str]
"""Remembers a session that has ended: until when, why it ended, and the API key that is told so.

A plain tuple: Python's garbage collector leaves it alone, while 100,000 objects would pause the server.
"""


class Sessions:
    """All sessions of a server, and the tombstones of those that ended."""

    def __init__(self, shared: Shared, keys: Keys | None = None, identity: Identity | None = None) -> None:
        self.shared = shared
        self.identity = identity or Identity()
        self.retiring = False
        """Whether the server takes no new sessions and ends with its last one."""
        self.begun = 0
        """The number of sessions that have ever begun here."""
        self.admission = Admission(shared.limits, keys or Keys())
        self._live: dict[str, ServerSession] = {}
        self._by_token: dict[str, ServerSession] = {}
        # Not a plain dict, where finding the first item gets slow after many were removed from the front.
        self._ended: OrderedDict[str, _Tombstone] = OrderedDict()
        self._ending: dict[str, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[ServerSession]:
        return iter(self._live.values())

    @property
    def accepts_sessions(self) -> bool:
        return not self.shared.draining and not self.retiring

    def reserve(
        self, sid: str, environment: str, now: float, limits: Limits, key: str = "", *, admitted: bool = False
    ) -> ServerSession:
        """Creates a session under that id; if it is `admitted`, in a place that is taken already.

        Raises:
            BadRequest: the id is taken.
            Unavailable: there is no place for it.
        """
        if sid in self._live:
            raise BadRequest("Session already exists")
        if not admitted:
            self.admission.enter(environment, key)
        self._ended.pop(sid, None)
        self.begun += 1
        session = self._live[sid] = ServerSession(self.shared, limits, sid, environment, key, now)
        return session

    def release(self, session: ServerSession) -> None:
        """Undoes a reservation whose creation failed."""
        if self._live.get(session.sid) is session:
            del self._live[session.sid]
            self.admission.leave(session.environment, session.key)

    def fork(self, session: ServerSession, count: int, key: str | None = None, trace: str = "") -> Fork:
        """Begins a fork of a session, or joins the one that has the same idempotency key."""
        if session.forks is None:
            session.forks = Forks()
        known = session.forks.by_key(key)
        if known is not None:
            return known
        session.check()
        session.check_room()
        environment, owner = session.environment, session.key
        most = self.admission.most(environment, owner)
        if count + 1 > most:
            raise BadRequest(f"n: at most {most} sessions at once, counting the forked one")
        self.admission.enter(environment, owner, count)
        fork = Fork(count, self._undo_fork)
        task = session.forks.start(fork, self._forked(fork, session, count, trace), key)
        # Not in the task: one that is cancelled before its first step runs no code.
        task.add_done_callback(lambda _: self.admission.leave(environment, owner, fork.places))
        return fork

    async def _forked(self, fork: Fork, session: ServerSession, count: int, trace: str) -> list[str]:
        try:
            episodes = await session.fork(count)
        except asyncio.CancelledError:
            session.check()  # if the session has ended, that is the reason
            self.shared.check_open()
            raise
        fork.places = 0  # the new sessions have them
        session.seen = now = asyncio.get_running_loop().time()
        return [self._open_copy(session, episode, now, trace) for episode in episodes]

    def _open_copy(self, first: ServerSession, episode: Episode, now: float, trace: str) -> str:
        # Leads here, wherever the id of the first one came from.
        sid = self.identity.new_session_id()
        started = EpisodeForked(sid, first.sid) if self.shared.observers.recorders else None
        made = self.reserve(sid, first.environment, now, first.limits, first.key, admitted=True)
        made.place = first.place
        prompt = self.shared.prompts.get(first.sid)
        if prompt is not None:  # the fork goes on from it
            self.shared.prompts.keep(sid, prompt)
            if self.shared.recent is not None:
                self.shared.recent.add_prompt(sid, first.key, prompt)
        made.start(episode, trace, started)
        return sid

    def _undo_fork(self, sids: list[str]) -> None:
        now = asyncio.get_running_loop().time()
        for session in [self._live[sid] for sid in sids if sid in self._live]:
            self._end(session, "Session deleted", "deleted", now)

    def find(self, sid: str, now: float, key: str = "") -> ServerSession:
        """Finds a session, as `peek` does. This counts as activity."""
        session = self._live.get(sid)
        if session is None or session.key != key:
            raise self._absent(sid, now, key)
        session.seen = now
        return session

    def token(self, session: ServerSession) -> str:
        """A name of a session that leads here as its id does, but does not tell the id."""
        if not session.token:
            session.token = self.identity.new_session_id()
            self._by_token[session.token] = session
        return session.token

    def by_token(self, token: str, now: float) -> ServerSession:
        """Finds the session of a token, whatever its key is. This counts as activity."""
        session = self._by_token.get(token)
        if session is None:
            raise NotFound("No session, or it has ended")
        session.seen = now
        return session

    def peek(self, sid: str, now: float, key: str = "") -> ServerSession:
        """Finds a session.

        Raises:
            Gone: it has ended.
            NotFound: there is none, or it belongs to another key.
        """
        session = self._live.get(sid)
        if session is None or session.key != key:
            raise self._absent(sid, now, key)
        return session

    def __contains__(self, sid: str) -> bool:
        return sid in self._live

    def presence(self, sid: str, now: float) -> int:
        """2 for a session of this server, 1 for one that ended here recently, 0 for any other id."""
        if sid in self._live:
            return 2
        tombstone = self._ended.get(sid)
        return int(tombstone is not None and tombstone[0] > now)

    def touch(self, sid: str, now: float, key: str = "") -> None:
        """Counts as activity of the session, if it exists."""
        session = self._live.get(sid)
        if session is not None and session.key == key:
            session.seen = now

    def delete(self, sid: str, now: float, key: str = "") -> asyncio.Task[None] | None:
        """Ends a session, and returns its teardown if there is one to wait for. May be repeated."""
        session = self._live.get(sid)
        if session is not None and session.key == key:
            self._end(session, "Session deleted", "deleted", now)
        elif isinstance(absent := self._absent(sid, now, key), NotFound):
            raise absent
        return self._ending.get(sid)

    def reap(self, now: float) -> None:
        """Ends sessions that were idle or alive for too long, and removes old tombstones."""
        for session in list(self._live.values()):
            limits = session.limits
            if limits.life_seconds is not None and session.created + limits.life_seconds < now:
                text = f"Session expired: its lifetime is {limits.life_seconds:g} s"
                self._end(session, text, "life", now)
            elif session.seen + limits.idle_seconds < now:
                if session.running and not session.needs_pings:
                    session.seen = now  # a running call counts as activity
                else:
                    self._end(session, "Session expired", "expired", now)
        while self._ended and next(iter(self._ended.values()))[0] <= now:
            self._ended.popitem(last=False)

    def refuse_new(self, now: float, message: str) -> None:
        """Refuses new work, stops running forks, and ends sessions that are not set up yet."""
        self.shared.draining = True
        for session in list(self._live.values()):
            if session.forks is not None:
                session.forks.stop()
            if session.state is CREATING:
                self._end(session, message, "shutdown", now)

    async def drain(self) -> None:
        """Waits until every call has ended and every result was delivered: clients may return for them."""
        while self.shared.running or self.shared.kept.awaited:
            tasks = [task for session in self._live.values() for task in session.calls.tasks()]
            if tasks:
                await asyncio.wait(tasks)
            else:
                await asyncio.sleep(COMING_BACK_SECONDS)

    def stop_calls(self, message: str, reason: str) -> None:
        """Ends the stream of every running call with an `error` event."""
        for session in self._live.values():
            session.calls.stop(message, reason)

    async def close(self, now: float, message: str) -> None:
        self.refuse_new(now, message)
        for session in list(self._live.values()):
            self._end(session, message, "shutdown", now)
        while self._ending:
            await asyncio.wait(set(self._ending.values()))

    def _absent(self, sid: str, now: float, key: str) -> ORSError:
        until, reason, owner = self._ended.get(sid, (now, "", ""))
        if until > now and owner == key:
            return Gone(ENDED.get(reason, "Session deleted"), reason=reason)
        if self.identity.lost(sid):
            return Gone("Session lost: its server was restarted", reason="worker_lost")
        return NotFound("Session not found")

    def _end(self, session: ServerSession, message: str, reason: str, now: float) -> None:
        sid = session.sid
        del self._live[sid]
        self._by_token.pop(session.token, None)
        self._ended[sid] = (now + TOMBSTONE_SECONDS, reason, session.key)
        if len(self._ended) > TOMBSTONES:
            self._ended.popitem(last=False)
        task = session.end(message, reason)
        self.admission.leave(session.environment, session.key)
        if task is not None:
            self._ending[sid] = task
            task.add_done_callback(lambda done: self._forget_ending(sid, done))

    def _forget_ending(self, sid: str, task: asyncio.Task[None]) -> None:
        if self._ending.get(sid) is task:
            del self._ending[sid]
