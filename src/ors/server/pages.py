"""What the server offers besides the standard, below `/-/`: health, metrics, and the list of sessions."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import parse_qs

from ors.errors import BadRequest, MethodNotAllowed, NotFound
from ors.server.answers import TEXT, Answer, answer
from ors.server.metrics import Metrics
from ors.server.offers import Offer
from ors.server.requests import Request
from ors.server.sessions import Session, Sessions

LIVE, READY = "/-/health/live", "/-/health/ready"
HEALTH_PATHS = (LIVE, READY)
METRICS = "/-/metrics"
SESSIONS = "/-/sessions"
PAGE = 100
MAX_PAGE = 1000

Later = Coroutine[Any, Any, Answer]
Page = Callable[[Request, Offer], Answer | Later]


class Pages:
    """The pages, by method and path."""

    def __init__(self, sessions: Sessions, metrics: Metrics, is_ready: Callable[[], bool]) -> None:
        self._sessions = sessions
        self._metrics = metrics
        self._is_ready = is_ready
        self._pages: dict[str, dict[str, Page]] = {
            LIVE: {"GET": lambda request, offer: answer({"status": "ok"})},
            READY: {"GET": self._ready},
            METRICS: {"GET": lambda request, offer: Answer(200, metrics.text(), TEXT)},
            SESSIONS: {"GET": self._list},
        }

    def route(self, method: str, path: str) -> Page:
        """The page of a path.

        Raises:
            NotFound: there is none.
            MethodNotAllowed: there is one, with another method.
        """
        pages = self._pages.get(path)
        if pages is None and path.startswith(f"{SESSIONS}/"):
            pages = {"DELETE": self._end}
        if pages is None:
            raise NotFound("There is nothing at this path")
        if method not in pages:
            allow = ", ".join(pages)
            raise MethodNotAllowed(f"{method} is not allowed here; use {allow}", allow=allow)
        return pages[method]

    def _ready(self, request: Request, offer: Offer) -> Answer:
        if self._is_ready():
            return answer({"status": "ready"})
        return Answer(503, b'{"detail":"Not ready: draining, or as many sessions as there may be"}')

    def _list(self, request: Request, offer: Offer) -> Answer:
        """A page of this key's sessions: `?environment=`, `?state=`, `?offset=`, `?limit=`."""
        asked = parse_qs(request.query.decode("latin-1"))
        environment, state = asked.get("environment", [""])[0], asked.get("state", [""])[0]
        found = [
            session
            for session in self._sessions
            if session.key == request.key
            and environment in ("", session.environment)
            and state in ("", session.state.value)
        ]
        start, count = _number(asked, "offset", 0), min(_number(asked, "limit", PAGE), MAX_PAGE)
        now = asyncio.get_running_loop().time()
        page = [_told(session, now) for session in found[start : start + count]]
        return answer({"total": len(found), "offset": start, "sessions": page})

    async def _end(self, request: Request, offer: Offer) -> Answer:
        sid = request.path[len(SESSIONS) + 1 :]
        ending = self._sessions.delete(sid, asyncio.get_running_loop().time(), request.key)
        if ending is not None:
            await asyncio.wait({ending})
        return answer({"sid": sid})


def _number(asked: dict[str, list[str]], name: str, otherwise: int) -> int:
    text = asked.get(name, [str(otherwise)])[0]
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise BadRequest(f"{name}: a number of 0 or more is expected")
    return int(text)


def _told(session: Session, now: float) -> dict[str, object]:
    return {
        "sid": session.sid,
        "environment": session.environment,
        "state": session.state.value,
        "age_seconds": round(now - session.created, 3),
        "idle_seconds": round(now - session.seen, 3),
        "calls": session.steps,
        "running": session.calls.running,
        "reward": session.reward,
        "finished": session.episode.finished if session.episode is not None else False,
    }
