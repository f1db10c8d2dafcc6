"""Pages below `/-/`: health, metrics, sessions and their forks, and the inspector with its interface."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from ors._version import __version__
from ors.errors import Forbidden, Gone, NotFound, SandboxDead, SandboxLimit
from ors.server.admin.environments import described, listed, search
from ors.server.admin.live_sessions import LiveSessions, View
from ors.server.admin.metrics import Metrics
from ors.server.episodes.environments import ServedEnvironment
from ors.server.http.answers import STREAM, TEXT, Answer, Headers, Redirect, answer
from ors.server.http.requests import Request
from ors.server.http.routing import HOME, Coming, Route, unknown_environment
from ors.server.http.streams import Feed, Outcome
from ors.server.sessions.admission import Keys
from ors.server.sessions.calls import Fork
from ors.server.sessions.registry import Sessions
from ors.server.sessions.session import ServerSession
from ors.types import ForkSession

PAGE = 100
MAX_PAGE = 1000
LIVE_MAX_PAGE = 2000
LOOK_SECONDS = 5.0

PAGE_FOLDER = Path(__file__).parents[2] / "inspector" / "page"
TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}
# The output of environments is untrusted: only our own files may run or load, and no data may leave.
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Pages:
    def __init__(
        self,
        environments: Mapping[str, ServedEnvironment],
        sessions: Sessions,
        metrics: Metrics,
        is_ready: Callable[[], bool],
    ) -> None:
        self._environments = environments
        self._sessions = sessions
        self._metrics = metrics
        self._is_ready = is_ready

    def live(self, request: Request) -> Answer:
        return answer({"status": "ok"})

    def ready(self, request: Request) -> Answer:
        if self._is_ready():
            return answer({"status": "ready"})
        return Answer(503, b'{"detail":"Not ready: shutting down, or at the session limit"}')

    def metrics(self, request: Request) -> Answer:
        return Answer(200, self._metrics.text(), TEXT)

    def openapi(self, request: Request) -> Answer:
        from ors.server.admin.openapi import document  # its schemas take time that a server's start has not

        return answer(document())

    async def description(self, name: str, request: Request) -> Answer:
        """The description of an environment; with `?counts=false`, tasks are not counted."""
        environment = self._environments.get(name.lower())
        if environment is None:
            raise unknown_environment(self._environments)
        return answer(await described(environment, counts=request.asked("counts") != "false"))

    def sessions(self, request: Request) -> Answer:
        """A page of this key's sessions: `?environment=`, `?state=`, `?offset=`, `?limit=`."""
        view = _view(request, MAX_PAGE)
        found = [session for session in self._sessions if view.shows(session)]
        now = asyncio.get_running_loop().time()
        page = [_session_json(each, now) for each in found[view.offset : view.offset + view.limit]]
        return answer({"total": len(found), "offset": view.offset, "sessions": page})

    async def end_session(self, sid: str, request: Request) -> Answer:
        ending = self._sessions.delete(sid, asyncio.get_running_loop().time(), request.key)
        if ending is not None:
            await asyncio.wait({ending})
        return answer({"sid": sid})

    def fork(self, request: Request) -> Coming:
        now = asyncio.get_running_loop().time()
        session = self._sessions.find(request.session_id(), now, request.key)
        count = request.model(ForkSession).n
        fork = self._sessions.fork(session, count, request.idempotency_key(), request.trace())
        request.waiting = True  # when its client leaves, the fork is undone
        return _forked(fork)


async def _forked(fork: Fork) -> Answer:
    return answer({"sids": await fork.sids()})


def _session_json(session: ServerSession, now: float) -> dict[str, object]:
    return {
        "sid": session.sid,
        "environment": session.environment,
        "state": session.state.value,
        "age_seconds": round(now - session.created, 3),
        "idle_seconds": round(now - session.seen, 3),
        "calls": session.score.calls,
        "running": session.running,
        "reward": session.score.reward,
        "finished": session.episode.finished if session.episode is not None else False,
    }


class RecordedRuns(Protocol):
    """Recorded runs that the inspector shows."""

    @property
    def routes(self) -> Sequence[Route[Any]]:
        """The rows of their paths; this is the owner."""


class Inspector:
    def __init__(
        self,
        live: LiveSessions,
        sessions: Sessions,
        environments: Mapping[str, ServedEnvironment],
        keys: Keys,
    ) -> None:
        self._live = live
        self._sessions = sessions
        self._environments = environments
        self._keys = keys
        self.runs: RecordedRuns | None = None
        """The runs that the page shows, if the server keeps records."""

    def home(self, request: Request) -> Answer:
        if request.path != HOME:
            raise Redirect(HOME.encode())
        return page_file("index.html")

    def file(self, name: str, request: Request) -> Answer:
        return page_file(name)

    def about(self, request: Request) -> Answer:
        runs = self.runs is not None and self._sees_runs(request.key)
        return answer({"version": __version__, "server": None, "live": True, "runs": runs, "serves": True})

    def environments(self, request: Request) -> Answer:
        return answer([listed(environment) for environment in self._environments.values()])

    async def tasks(self, request: Request) -> Answer:
        environment = self._environments.get(request.asked("environment"))
        if environment is None:
            raise NotFound("No such environment")
        private = self._keys.sees_private(request.key)
        split, text, start = request.asked("split"), request.asked("text"), request.number("from", 0)
        return answer(await search(environment, split, text, start, private=private))

    def live(self, request: Request) -> Answer | Feed:
        return _without_waiting(request, self._live.sessions(_view(request, LIVE_MAX_PAGE)))

    def live_now(self, request: Request) -> Answer:
        """What `live` tells now, for a server that tells it together with its own."""
        return answer(self._live.now(_view(request, LIVE_MAX_PAGE), request.number("since", 0)))

    def calls(self, sid: str, request: Request) -> Answer | Feed:
        try:
            session = self._sessions.peek(sid, asyncio.get_running_loop().time(), request.key)
        except (Gone, NotFound):
            ended = self._live.ended_calls(sid, request.key)
            if ended is None:
                raise
            return ended
        return _without_waiting(request, self._live.calls(session))

    async def sandbox(self, sid: str, request: Request) -> Answer:
        """The contents of a session's sandbox; null if it has none, or if it does not answer."""
        # Imported here: most servers have no sandbox.
        from ors.sandbox import Sandbox

        session = self._sessions.peek(sid, asyncio.get_running_loop().time(), request.key)
        box = session.episode.sandbox if session.episode is not None else None
        if not isinstance(box, Sandbox):
            return answer(None)
        try:
            # The sandbox would be killed if it were waited for much longer.
            async with asyncio.timeout(LOOK_SECONDS):
                return answer(asdict(await box.look()))
        except (SandboxDead, SandboxLimit, TimeoutError):
            return answer(None)

    def run_routes(self) -> Sequence[Route[Any]]:
        """The rows of the recorded runs, for keys that may see them."""
        rows = [] if self.runs is None else self.runs.routes
        return [row._replace(handler=self._for_keys_with_private(row.handler)) for row in rows]

    def _for_keys_with_private(self, handler: Callable[..., Outcome | Coming]) -> Callable[..., Any]:
        def checked(runs: RecordedRuns, request: Request) -> Outcome | Coming:
            if not self._sees_runs(request.key):
                raise Forbidden(
                    "Recordings hold the sessions of all keys: only keys with `private` may see them"
                )
            return handler(runs, request)

        return checked

    def _sees_runs(self, key: str) -> bool:
        return len(self._keys.by_name) < 2 or self._keys.sees_private(key)


@cache
def page_files() -> Mapping[str, Answer]:
    """The files of the page by their path in its folder, read once."""
    found = [path for path in PAGE_FOLDER.rglob("*") if path.is_file()]
    return {path.relative_to(PAGE_FOLDER).as_posix(): _file(path) for path in found}


def page_file(name: str) -> Answer:
    found = page_files().get(name)
    if found is None:
        raise NotFound("Not found")
    return found


def _file(path: Path) -> Answer:
    headers = Headers(
        (b"content-type", TYPES[path.suffix]),
        (b"content-security-policy", POLICY),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-cache"),
    )
    return Answer(200, path.read_bytes(), headers)


def _without_waiting(request: Request, feed: Feed) -> Answer | Feed:
    # A feed never ends, so a HEAD must not wait for it.
    return Answer(200, b"", STREAM) if request.method == "HEAD" else feed


def _view(request: Request, most: int) -> View:
    start, count = request.number("offset", 0), min(request.number("limit", PAGE), most)
    return View(request.key, request.asked("environment"), request.asked("state"), start, count)
