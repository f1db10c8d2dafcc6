"""Live feeds of sessions: all of them every second, with traffic and ended episodes, or one call by call."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from heapq import nlargest
from typing import Any, NamedTuple, assert_never

from ors._json import dumps, loads
from ors._protocol import PING_COMMENT, result_events, task_id_event
from ors.server.admin.environments import TaskPreviews
from ors.server.episodes.environments import ServedEnvironment
from ors.server.http.answers import STREAM, Answer
from ors.server.http.streams import Feed, event
from ors.server.observe.counters import EpisodeTotals
from ors.server.observe.events import (
    CallEnded,
    CallStarted,
    EpisodeEnded,
    EpisodeForked,
    EpisodeStarted,
    PromptAsked,
    SessionEnded,
    ToolsListed,
    Watched,
)
from ors.server.sessions.admission import Keys
from ors.server.sessions.calls import Call
from ors.server.sessions.kept_results import MOST_A_SECOND, RecentCall
from ors.server.sessions.registry import Sessions
from ors.server.sessions.session import ServerSession
from ors.server.sessions.shared import Shared

TICK_SECONDS = 1.0
PING_TICKS = 10
MOST_SHOWN_BYTES = 2**20
"""An input or a result over this is not shown."""
MINUTES = 5
"""How long the traffic is kept."""
KEPT = 100
"""Episodes of each environment that are kept."""
SHOWN = 50


Snapshot = dict[str, Any]
"""What a reader is told: `points` since a time in milliseconds (0: all), `sessions` and `episodes`."""


class View(NamedTuple):
    """The part of the list of sessions that a reader has selected."""

    key: str
    environment: str
    state: str
    offset: int
    limit: int

    def shows(self, session: ServerSession) -> bool:
        return (
            session.key == self.key
            and self.environment in ("", session.environment)
            and self.state in ("", session.state.value)
        )


class LiveFeed:
    """Tells one reader the sessions and the traffic, every second: what has changed."""

    def __init__(self, ask: Callable[[int], Awaitable[Snapshot]]) -> None:
        self._ask = ask
        self._sent: dict[str, bytes] = {}
        self._task: asyncio.Task[None] | None = None
        self.feed = Feed(self._open, self._close)

    def _open(self, feed: Feed) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def _close(self, feed: Feed) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        tick, since = loop.time(), 0
        while True:
            told = await self._ask(since)
            if since == 0:
                self.feed.tell(event("history", told["points"]))
            for point in told["points"] if since else ():
                self.feed.tell(event("point", point))
            since = told["since"]
            for name in ("sessions", "episodes"):
                part = event(name, told[name])
                if part != self._sent.get(name):
                    self._sent[name] = part
                    self.feed.tell(part)
            tick = max(tick + TICK_SECONDS, loop.time())
            await asyncio.sleep(tick - loop.time())


class LiveSessions:
    """All feeds of sessions. The traffic is summed up also without readers, for those who come later."""

    def __init__(self, sessions: Sessions, environments: Mapping[str, ServedEnvironment], keys: Keys) -> None:
        self._shared = shared = sessions.shared
        self._sessions = sessions
        self._previews = TaskPreviews(environments, keys)
        self.ended = EndedEpisodes(shared, self._previews)
        """Observes the server, also without readers."""
        self._traffic = Traffic(shared)
        self._watches: dict[Feed, SessionFeed] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._ticks = 0
        self._clock_offset = 0.0  # wall-clock time minus the loop's time

    def sessions(self, view: View) -> Feed:
        """The sessions of a view and the traffic, every second."""

        async def ask(since: int) -> Snapshot:
            return self.now(view, since)

        return LiveFeed(ask).feed

    def now(self, view: View, since: int) -> Snapshot:
        found = [session for session in self._sessions if view.shows(session)]
        found.reverse()  # the newest first
        rows = [self._row(session) for session in found[view.offset : view.offset + view.limit]]
        points = [point for point in self._traffic.points if round(point["at"] * 1000) > since]
        totals = {name: each._asdict() for name, each in self._shared.episodes.totals().items()}
        return {
            "now": {"sessions": len(self._sessions), "running": self._shared.running},
            "points": points,
            "since": round(points[-1]["at"] * 1000) if points else since or 1,
            "sessions": {"total": len(found), "offset": view.offset, "sessions": rows},
            "episodes": {"totals": totals, "ended": self.ended.shown(view.key, view.environment)},
        }

    def calls(self, session: ServerSession) -> Feed:
        """The calls of a session: kept, running and following ones."""
        observers = self._shared.observers

        def begin(feed: Feed) -> None:
            watch = self._watches[feed] = SessionFeed(feed, session)
            observers.watch(session.sid, watch)
            recent = self._shared.recent
            calls = [] if recent is None else recent.of(session.sid, session.key)
            watch.begin(self._row(session, whole=True), self._shared.prompts.get(session.sid), calls)

        def end(feed: Feed) -> None:
            observers.unwatch(session.sid, self._watches.pop(feed))

        return Feed(begin, end)

    def ended_calls(self, sid: str, key: str) -> Answer | None:
        """The calls of a session that has ended, as far as they are kept, in the form of `calls`."""
        episode, recent = self.ended.find(sid, key), self._shared.recent
        if episode is None or recent is None:
            return None
        created = round(episode["ended"] - episode["seconds"], 3)
        row = {**episode, "state": "ended", "created": created, "running": 0}
        calls = [_recent_call(call) for call in recent.of(sid, key)]
        told = (event("session", row), _prompt_event(recent.prompt(sid, key)), event("before", calls))
        return Answer(200, b"".join((*told, event("over", None))), STREAM)

    # ── Contents ─────────────────────────────────────────────────────────────────────────────

    def _row(self, session: ServerSession, *, whole: bool = False) -> dict[str, Any]:
        task: Any = session.episode.task if session.episode is not None else {}
        seen = self._previews.whole if whole else self._previews.short
        self._clock_offset = self._clock_offset or time.time() - asyncio.get_running_loop().time()
        return {
            "sid": session.sid,
            "environment": session.environment,
            "state": session.state.value,
            "failure": str(session.failure or ""),
            "created": round(session.created + self._clock_offset, 3),
            "seen": round(session.seen + self._clock_offset, 1),
            "calls": session.score.calls,
            "running": session.running,
            "reward": session.score.so_far,
            "components": {name: round(value, 9) for name, value in (session.score.components or {}).items()},
            "finished": session.episode is not None and session.episode.finished,
            "task": seen(task, session.environment, session.key),
        }

    # ── The clock ────────────────────────────────────────────────────────────────────────────────

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(TICK_SECONDS, self._tick, loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self.start(loop)
        self._ticks += 1
        self._traffic.sum_up(time.time(), len(self._sessions))
        for watch in list(self._watches.values()):
            changed = watch.tell_session(self._row(watch.session, whole=True))
            if not changed and self._ticks % PING_TICKS == 0:
                watch.feed.tell(PING_COMMENT)


class SessionFeed:
    """The feed of one reader who follows one session."""

    def __init__(self, feed: Feed, session: ServerSession) -> None:
        self.feed = feed
        self.session = session
        self._sent = b""

    def begin(self, row: dict[str, Any], prompt: bytes | None, recent: Sequence[RecentCall]) -> None:
        self.tell_session(row)
        self.feed.tell(_prompt_event(prompt))
        known = {call.id for call in recent}
        others = [call for call in self.session.calls if call.id not in known]
        older = [_kept(call) for call in others if call.ending is not None]
        running = [_kept(call) for call in others if call.ending is None]
        self.feed.tell(event("before", [*older, *map(_recent_call, recent), *running]))

    def tell_session(self, row: dict[str, Any]) -> bool:
        """Sends the session, if it has changed; returns whether it has."""
        update = event("session", row)
        if update == self._sent:
            return False
        self._sent = update
        self.feed.tell(update)
        return True

    def show(self, happened: Watched) -> None:
        match happened:
            case PromptAsked():
                if not happened.error:
                    fits = len(dumps(happened.blocks)) <= MOST_SHOWN_BYTES
                    self.feed.tell(event("prompt", happened.blocks if fits else None))
            case CallStarted():
                fits = len(dumps(happened.input)) <= MOST_SHOWN_BYTES
                self._tell_call("started", happened, {"input": happened.input if fits else None})
            case CallEnded():
                stream = _stream(happened.task_id, happened.ending)
                self._tell_call("ended", happened, {"seconds": round(happened.seconds, 6), **stream})
            case EpisodeStarted() | EpisodeForked() | ToolsListed() | SessionEnded():
                pass  # the rows of sessions tell it
            case _:
                assert_never(happened)

    def _tell_call(self, name: str, happened: CallStarted | CallEnded, more: dict[str, Any]) -> None:
        known = {"task_id": happened.task_id, "tool": happened.tool, "at": round(time.time(), 3)}
        self.feed.tell(event(name, {**known, **more}))


def _prompt_event(prompt: bytes | None) -> bytes:
    fits = prompt is not None and len(prompt) <= MOST_SHOWN_BYTES
    return event("prompt", loads(prompt) if prompt is not None and fits else None)


def _recent_call(call: RecentCall) -> dict[str, Any]:
    stream = {"stream": None, "bytes": call.size} if call.ending is None else _stream(call.id, call.ending)
    return {
        "task_id": call.id,
        "tool": call.tool,
        "seconds": round(call.seconds, 6),
        "input": None if call.request is None else loads(call.request)["input"],
        **stream,
    }


def _kept(call: Call) -> dict[str, Any]:
    known = {"task_id": call.id, "tool": call.tool, "seconds": round(call.age, 6)}
    asked = {} if call.request is None else {"input": loads(call.request)["input"]}
    return known | asked | ({} if call.ending is None else _stream(call.id, call.ending))


def _stream(task_id: str, ending: bytes) -> dict[str, Any]:
    fits = len(ending) <= MOST_SHOWN_BYTES
    stream = (task_id_event(task_id) + result_events(ending)).decode() if fits else None
    return {"stream": stream, "bytes": len(ending)}


# ── What has happened lately ─────────────────────────────────────────────────────────────────────


class Traffic:
    """Sums up every second. It reads counters that are kept anyway, so a call pays nothing for it."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._calls: Counter[str] = Counter()
        self._episodes: dict[str, EpisodeTotals] = {}
        self._since = float("-inf")
        self.points: deque[dict[str, Any]] = deque(maxlen=MINUTES * 60)

    def sum_up(self, at: float, sessions: int) -> dict[str, Any]:
        """Ends a second: returns its point, and starts the next."""
        before, self._calls = self._calls, self._shared.calls.outcomes()
        calls = self._calls - before
        since, self._since = self._since, self._shared.now()
        ordered: list[float] = []
        if (recent := self._shared.recent) is not None:
            ordered = sorted(call.seconds for call in recent.since(since))
            recent.left = MOST_A_SECOND
        point = {
            "at": round(at, 3),
            "sessions": sessions,
            "running": self._shared.running,
            "calls": calls.total(),
            "refused": calls["refused"],
            "failed": calls["failed"],
            "episodes": self._ended(),
            **{f"p{share}": _percentile(ordered, share) for share in (50, 95, 99)},
        }
        self.points.append(point)
        return point

    def _ended(self) -> dict[str, dict[str, float]]:
        before, self._episodes = self._episodes, self._shared.episodes.totals()
        none = EpisodeTotals()
        return {
            name: total.since(before.get(name, none))._asdict()
            for name, total in self._episodes.items()
            if total.ended != before.get(name, none).ended
        }


def _percentile(ordered: list[float], share: int) -> float | None:
    return round(ordered[(len(ordered) - 1) * share // 100], 6) if ordered else None


class EndedEpisodes:
    """Keeps the episodes of each environment that ended last.

    Their rows are made when somebody looks, or by `settle`: a busy server ends thousands in a second.
    """

    def __init__(self, shared: Shared, previews: TaskPreviews) -> None:
        self._shared = shared
        self._previews = previews
        self._fresh: dict[str, deque[tuple[EpisodeEnded, float, float]]] = {}  # with the times of their ends
        self._kept: dict[str, deque[tuple[str, dict[str, Any]]]] = {}

    def observe(self, event: EpisodeEnded) -> None:
        fresh = self._fresh.get(event.environment)
        if fresh is None:
            fresh = self._fresh[event.environment] = deque(maxlen=KEPT)
            self._kept[event.environment] = deque(maxlen=KEPT)
        loop = self._shared.loop
        fresh.append((event, time.time(), 0.0 if loop is None else loop.time() - event.created))

    def settle(self) -> None:
        """Makes the rows of new episodes, and lets go of their tasks, which may be large."""
        for environment, fresh in self._fresh.items():
            rows = [(event.key, self._row(event, ended, seconds)) for event, ended, seconds in fresh]
            self._kept[environment].extend(rows)
            fresh.clear()

    def _row(self, event: EpisodeEnded, ended: float, seconds: float) -> dict[str, Any]:
        return {
            "sid": event.sid,
            "environment": event.environment,
            "outcome": event.outcome,
            "reward": None if event.reward is None else round(event.reward, 9),
            "components": {name: round(value, 9) for name, value in event.components.items()},
            "calls": event.calls,
            "ended": round(ended, 3),
            "seconds": round(seconds, 3),
            "task": self._previews.short(event.task or {}, event.environment, event.key),
        }

    def find(self, sid: str, key: str) -> dict[str, Any] | None:
        """The episode of a session of that key, if it is kept."""
        self.settle()
        mine = (row for rows in self._kept.values() for owner, row in rows if owner == key)
        return next((row for row in mine if row["sid"] == sid), None)

    def shown(self, key: str, environment: str) -> list[dict[str, Any]]:
        """The episodes of a key, newest first; of all environments if none is named."""
        self.settle()
        kept = [self._kept.get(environment, ())] if environment else self._kept.values()
        mine = (row for rows in kept for owner, row in rows if owner == key)
        return nlargest(SHOWN, mine, key=lambda row: row["ended"])
