"""Pages that combine all servers: metrics, sessions, health, and the live feed."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from heapq import nlargest
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

from ors._json import loads
from ors.cluster.link import Forwarded
from ors.cluster.peers import Peer, Peers
from ors.errors import Unavailable
from ors.server.admin.live_sessions import SHOWN, LiveFeed, Snapshot
from ors.server.admin.pages import LIVE_MAX_PAGE, MAX_PAGE, PAGE
from ors.server.app import App
from ors.server.http.answers import TEXT, Answer, Headers, answer, refusal
from ors.server.http.requests import Request
from ors.server.http.routing import METRICS, READY, SESSIONS
from ors.server.http.streams import Later, Outcome, Sink, Stream
from ors.server.routes import ABOUT, LIVE_FEED, LIVE_NOW

ANSWER_SECONDS = 2.0
"""A server that takes longer is left out: it may be frozen."""
_NAME = re.compile(rb"[\w:]*")
Ask = Callable[[Request], Coroutine[Any, Any, Answer]]


class MergedPages:
    def __init__(self, peers: Peers, local: App | None, tasks: set[asyncio.Task[None]]) -> None:
        self._peers = peers
        self._tasks = tasks
        self._local = local
        self._pages: dict[str, Callable[[Request], Coroutine[Any, Any, Outcome]]] = {
            METRICS: self._metrics,
            SESSIONS: self._sessions,
            READY: self._ready,
            LIVE_FEED: self._live,
        }

    def page(self, pattern: str, request: Request) -> Outcome:
        """Answers a request for a page that the table of paths says to merge."""
        return Later(request, self._pages[pattern](request), self._tasks)

    async def _live(self, request: Request) -> Outcome:
        """The feed of all servers, if this one offers one; for a router, if one of them does."""
        about = Request("GET", ABOUT, b"", request.headers, b"")
        asked = [partial(answer_of, peer) for peer in self._peers]
        if self._local is not None:
            asked = [partial(_here, self._local)]
        if not asked:
            raise Unavailable("No server is up", retry_after=1)
        offered = await asked[0](about)
        return LiveFeed(_AllServers(request, self._asked).ask).feed if offered.status == 200 else offered

    async def _all(self, request: Request) -> list[tuple[str, Answer]]:
        asked = self._asked()
        answers = await asyncio.gather(*(ask(request) for ask in asked.values()))
        return list(zip(asked, answers, strict=True))

    def _asked(self) -> dict[str, Ask]:
        """Returns how to ask each server, by name: its slot, with the incarnation if it is being replaced."""
        every: dict[tuple[int, int], Ask] = {
            (peer.slot, peer.incarnation): partial(answer_of, peer) for peer in self._peers
        }
        if self._local is not None:
            me = self._local.sessions.identity
            every[me.slot, me.incarnation] = partial(_here, self._local)
        newest = dict(sorted(every))
        return {
            str(slot) if newest[slot] == incarnation else f"{slot}.{incarnation}": every[slot, incarnation]
            for slot, incarnation in sorted(every)
        }

    async def _metrics(self, request: Request) -> Answer:
        answers = await self._all(request)
        texts = [(name, each.body) for name, each in answers if each.status == 200]
        return Answer(200, merged_metrics(texts), TEXT) if texts else _first(answers)

    async def _sessions(self, request: Request) -> Answer:
        asked = {name: request.asked(name) for name in ("environment", "state")}
        first, count = request.number("offset", 0), min(request.number("limit", PAGE), MAX_PAGE)
        total, listed, refused, answered = 0, list[Any](), _first([]), False
        for ask in self._asked().values():  # one by one: what is left to skip and to list is known then
            found = await ask(request.like(_query(asked, max(0, first - total), count - len(listed))))
            if found.status == 503:
                refused = found
                continue
            if found.status != 200:
                return found
            page = loads(found.body)
            total, answered = total + page["total"], True
            listed += page["sessions"]
        return answer({"total": total, "offset": first, "sessions": listed}) if answered else refused

    async def _ready(self, request: Request) -> Answer:
        heard = _first([])
        for asked in asyncio.as_completed([ask(request) for ask in self._asked().values()]):
            heard = await asked
            if heard.status == 200:
                break
        return heard


def _first(answers: list[tuple[str, Answer]]) -> Answer:
    return answers[0][1] if answers else refusal(Unavailable("No server is up", retry_after=1))


class _Collected(Sink):
    def __init__(self) -> None:
        self.whole_answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._parts: list[bytes] = []

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, Answer):
            self._give(outcome)
        else:
            outcome.leave()  # the answer of all servers, instead of that one's
            self.abort()

    def whole(self, status: int, headers: Headers, body: bytes) -> bool:
        return self._give(Answer(status, body))

    def head(self, status: int, headers: Headers, body: bytes = b"") -> None:
        self._status = status
        self._parts.append(body)

    def part(self, data: bytes) -> None:
        self._parts.append(data)

    def end(self, data: bytes) -> bool:
        return self._give(Answer(self._status, b"".join([*self._parts, data])))

    def abort(self) -> None:
        self._give(refusal(Unavailable("The server has died", retry_after=1)))

    def _give(self, whole: Answer) -> bool:
        if not self.whole_answer.done():
            self.whole_answer.set_result(whole)
        return True


async def answer_of(peer: Peer, request: Request) -> Answer:
    if peer.link is None:
        return refusal(Unavailable("The server has died", retry_after=1))
    return await _collected(Forwarded(peer.link, request))


async def _here(local: App, request: Request) -> Answer:
    outcome = local.take(request, forwarded=True)
    return outcome if isinstance(outcome, Answer) else await _collected(outcome)


async def _collected(stream: Stream) -> Answer:
    sink = _Collected()
    stream.begin(sink)
    try:
        return await asyncio.wait_for(sink.whole_answer, ANSWER_SECONDS)
    except TimeoutError:
        stream.leave()
        return refusal(Unavailable("The server did not answer in time", retry_after=1))


def merged_metrics(texts: list[tuple[str, bytes]]) -> bytes:
    """Merges the metrics of several servers: each sample gets a `server` label, each family one header."""
    families: dict[bytes, list[bytes]] = {}
    for name, text in texts:
        label = b'{server="%b"' % name.encode()
        family: list[bytes] = families.setdefault(b"", [])
        for line in text.splitlines():
            if line.startswith(b"# HELP "):
                known = line.split(b" ", 3)[2] in families
                family = families.setdefault(line.split(b" ", 3)[2], [])
                family += [] if known else [line]
            elif line.startswith(b"#"):
                family += [line] if line not in family else []
            elif line:
                family.append(_labelled(line, label))
    return b"\n".join(line for family in families.values() for line in family) + b"\n"


def _labelled(line: bytes, label: bytes) -> bytes:
    name = _NAME.match(line)
    assert name is not None
    rest = line[name.end() :]
    return name[0] + label + (b"," + rest[1:] if rest.startswith(b"{") else b"}" + rest)


def _query(asked: dict[str, str], offset: int, limit: int) -> bytes:
    return urlencode({**asked, "offset": offset, "limit": limit}).encode()


# ── The live feed ────────────────────────────────────────────────────────────────────────────────

_COUNTS = ("sessions", "running", "calls", "refused", "failed")
_SHARES = ("p50", "p95", "p99")
_Totals = dict[str, dict[str, float]]
"""Numbers of episodes by environment."""


class _AllServers:
    """The sessions that a request asks for, and the traffic, of all servers.

    Only the `LIVE_MAX_PAGE` newest sessions are listed: a page beyond them is the last of those.
    """

    def __init__(self, request: Request, asked: Callable[[], dict[str, Ask]]) -> None:
        self._count = min(request.number("limit", PAGE), LIVE_MAX_PAGE)
        self._first = min(request.number("offset", 0), LIVE_MAX_PAGE - self._count)
        wanted = {name: request.asked(name) for name in ("environment", "state")}
        self._wanted = {**wanted, "limit": self._first + self._count}
        self._headers = request.headers
        self._asked = asked
        self._told: dict[str, Snapshot] = {}

    async def ask(self, since: int) -> Snapshot:
        asked = self._asked()
        told = await asyncio.gather(*(self._ask(name, ask, since) for name, ask in asked.items()))
        self._told = {name: each for name, each in zip(asked, told, strict=True) if each is not None}
        pages = [each["sessions"] for each in self._told.values()]
        rows = [row for page in pages for row in page["sessions"]]
        newest = nlargest(self._first + self._count, rows, key=lambda row: row["created"])
        total = sum(page["total"] for page in pages)
        return {
            "points": self._points(since),
            "since": round(time.time() * 1000),
            "sessions": {"total": total, "offset": self._first, "sessions": newest[self._first :]},
            "episodes": _episodes([each["episodes"] for each in self._told.values()]),
        }

    async def _ask(self, name: str, ask: Ask, since: int) -> Snapshot | None:
        """What a server tells; what it told last, without its points, if it does not answer."""
        before = self._told.get(name)
        query = urlencode({**self._wanted, "since": before["since"] if before else since}).encode()
        found = await ask(Request("GET", LIVE_NOW, query, self._headers, b""))
        if found.status == 200:
            told: Snapshot = loads(found.body)
            return told
        return before and {**before, "points": []}

    def _points(self, since: int) -> list[dict[str, Any]]:
        points = [point for each in self._told.values() for point in each["points"]]
        if since == 0:
            points.sort(key=lambda point: point["at"])
            return [_sum(list(same)) for _, same in groupby(points, lambda point: round(point["at"]))]
        made = _sum(points)  # of a server, none or two may have come since
        for name in ("sessions", "running"):
            made[name] = sum(each["now"][name] for each in self._told.values())
        return [{**made, "at": round(time.time(), 3)}]


def _episodes(every: list[dict[str, Any]]) -> dict[str, Any]:
    ended = nlargest(SHOWN, (row for each in every for row in each["ended"]), key=lambda row: row["ended"])
    return {"totals": _added([each["totals"] for each in every]), "ended": ended}


def _sum(points: list[dict[str, Any]]) -> dict[str, Any]:
    """Merges the points of all servers; of percentiles, the largest is the best known bound."""
    made: dict[str, Any] = {"at": max((point["at"] for point in points), default=0.0)}
    made |= {name: sum(point[name] for point in points) for name in _COUNTS}
    made["episodes"] = _added([point.get("episodes", {}) for point in points])
    for name in _SHARES:
        made[name] = max((point[name] for point in points if point[name] is not None), default=None)
    return made


def _added(every: list[_Totals]) -> _Totals:
    found: dict[str, Counter[str]] = {}
    for totals in every:
        for name, numbers in totals.items():
            found.setdefault(name, Counter()).update(numbers)
    return {name: dict(numbers) for name, numbers in found.items()}
