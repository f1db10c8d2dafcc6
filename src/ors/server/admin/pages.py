"""Routes below `/-/`: health, metrics, sessions and their forks, the inspector."""

import asyncio
from collections.abc import Callable

from ors._protocol import FORK
from ors.errors import MethodNotAllowed, NotFound
from ors.server.admin.inspector_api import Inspector
from ors.server.episodes.environments import ServedEnvironment
from ors.server.http.answers import STREAM, TEXT, Answer, answer
from ors.server.http.requests import Request
from ors.server.http.routes import Coming, Handler
from ors.server.http.streams import Outcome, Stream
from ors.server.observe.prometheus import Metrics
from ors.server.sessions.forks import Fork
from ors.server.sessions.registry import Sessions
from ors.server.sessions.session import ServerSession
from ors.types import ForkSession

LIVE, READY = "/-/health/live", "/-/health/ready"
HEALTH_PATHS = (LIVE, READY)
METRICS = "/-/metrics"
SESSIONS = "/-/sessions"
PAGE = 100
MAX_PAGE = 1000


class Pages:
    """The pages, by method and path."""

    def __init__(
        self, sessions: Sessions, metrics: Metrics, inspector: Inspector, is_ready: Callable[[], bool]
    ) -> None:
        self.inspecting = False
        """Whether the inspector is offered."""
        self.inspector = inspector
        self._sessions = sessions
        self._metrics = metrics
        self._is_ready = is_ready
        self._pages: dict[str, dict[str, Handler]] = {
            LIVE: {"GET": lambda request, environment: answer({"status": "ok"})},
            READY: {"GET": self._ready},
            METRICS: {"GET": lambda request, environment: Answer(200, metrics.text(), TEXT)},
            SESSIONS: {"GET": self._list},
            FORK.path(): {FORK.method: self._fork},
        }

    def is_visit(self, request: Request) -> bool:
        """Whether a browser opens the bare address. It is led to the inspector."""
        if request.path != "/" or request.method not in ("GET", "HEAD"):
            return False
        return self.inspecting and request.wants_page()

    def route(self, method: str, path: str) -> Handler:
        """The handler of a page.

        Raises:
            NotFound: there is no such page.
            MethodNotAllowed: the page has another method.
        """
        pages = self._pages.get(path)
        if pages is None and path.startswith(f"{SESSIONS}/"):
            pages = {"DELETE": self._end}
        if pages is None:
            pages = {"GET": self._inspect}
        if method not in pages:
            allow = ", ".join(pages)
            raise MethodNotAllowed(f"{method} is not allowed here; use {allow}", allow=allow)
        return pages[method]

    def _ready(self, request: Request, environment: ServedEnvironment) -> Answer:
        if self._is_ready():
            return answer({"status": "ready"})
        return Answer(503, b'{"detail":"Not ready: draining, or as many sessions as there may be"}')

    def _list(self, request: Request, environment: ServedEnvironment) -> Answer:
        """A page of this key's sessions: `?environment=`, `?state=`, `?offset=`, `?limit=`."""
        name, state = request.asked("environment"), request.asked("state")
        found = [
            session
            for session in self._sessions
            if session.key == request.key
            and name in ("", session.environment)
            and state in ("", session.state.value)
        ]
        start, count = request.number("offset", 0), min(request.number("limit", PAGE), MAX_PAGE)
        now = asyncio.get_running_loop().time()
        page = [_session_json(session, now) for session in found[start : start + count]]
        return answer({"total": len(found), "offset": start, "sessions": page})

    def _inspect(self, request: Request, environment: ServedEnvironment) -> Outcome | Coming:
        found = None
        if self.inspecting:
            found = self.inspector.get(request, asyncio.get_running_loop().time())
        if found is None:
            raise NotFound("There is nothing at this path")
        # A feed never ends, so a HEAD must not wait for it.
        return Answer(200, b"", STREAM) if request.method == "HEAD" and isinstance(found, Stream) else found

    def _fork(self, request: Request, environment: ServedEnvironment) -> Coming:
        now = asyncio.get_running_loop().time()
        session = self._sessions.find(request.session_id(), now, request.key)
        count = request.model(ForkSession).n
        fork = self._sessions.fork(session, count, request.idempotency_key(), request.trace())
        request.waiting = True  # when its client leaves, the fork is undone
        return _forked(fork)

    async def _end(self, request: Request, environment: ServedEnvironment) -> Answer:
        sid = request.path[len(SESSIONS) + 1 :].rstrip("/")
        ending = self._sessions.delete(sid, asyncio.get_running_loop().time(), request.key)
        if ending is not None:
            await asyncio.wait({ending})
        return answer({"sid": sid})


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
