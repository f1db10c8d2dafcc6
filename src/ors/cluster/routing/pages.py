"""Pages that combine all servers: metrics, sessions, health."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from urllib.parse import urlencode

from ors._json import loads
from ors.cluster.link.client import Forwarded
from ors.cluster.routing.live import live
from ors.cluster.routing.peer import Peer
from ors.cluster.routing.peers import Peers
from ors.errors import Unavailable
from ors.server.admin.pages import MAX_PAGE, PAGE
from ors.server.app import App
from ors.server.http.answers import TEXT, Answer, Headers, answer, refusal
from ors.server.http.requests import Request
from ors.server.http.routing import METRICS, READY, SESSIONS
from ors.server.http.streams import Feed, Later, Outcome, Sink, Stream
from ors.server.routes import ABOUT, LIVE_FEED

ANSWER_SECONDS = 2.0
"""A server that takes longer is left out: it may be frozen."""
_NAME = re.compile(rb"[\w:]*")
Ask = Callable[[Request], Coroutine[Any, Any, Answer]]


class MergedPages:
    def __init__(self, peers: Peers, local: App | None, tasks: set[asyncio.Task[None]]) -> None:
        self._peers = peers
        self._tasks = tasks
        self._local = local
        self._pages: dict[str, Ask] = {
            METRICS: self._metrics,
            SESSIONS: self._sessions,
            READY: self._ready,
        }

    def page(self, pattern: str, request: Request) -> Outcome:
        """Answers a request for a page that the table of paths says to merge."""
        if pattern == LIVE_FEED:
            return self._watch(request)
        return Later(request, self._pages[pattern](request), self._tasks)

    def _watch(self, request: Request) -> Outcome:
        if self._local is None:
            return Later(request, self._watch_if_offered(request), self._tasks)
        here = self._local.take(request, forwarded=True)
        # The feed is not opened: this only shows whether there is one.
        return live(request, self._peers, self._local) if isinstance(here, Feed) else here

    async def _watch_if_offered(self, request: Request) -> Outcome:
        about = Request("GET", ABOUT, b"", request.headers, b"")
        answers = [await answer_of(peer, about) for peer in list(self._peers)[:1]]
        if not answers:
            raise Unavailable("No server is up", retry_after=1)
        return live(request, self._peers, None) if answers[0].status == 200 else answers[0]

    async def _all(self, request: Request) -> list[tuple[str, Answer]]:
        asked = self._asked()
        answers = await asyncio.gather(*(ask(request) for ask in asked.values()))
        return list(zip(asked, answers, strict=True))

    def _asked(self) -> dict[str, Ask]:
        """Returns how to ask each server, by name: its slot, with the incarnation if it is being replaced."""
        every: list[tuple[int, int, Ask]] = [
            (peer.slot, peer.incarnation, partial(answer_of, peer)) for peer in self._peers
        ]
        if self._local is not None:
            me = self._local.sessions.identity
            every.append((me.slot, me.incarnation, partial(_here, self._local)))
        newest = {slot: incarnation for slot, incarnation, _ in sorted(every, key=lambda each: each[:2])}
        return {
            str(slot) if newest[slot] == incarnation else f"{slot}.{incarnation}": ask
            for slot, incarnation, ask in sorted(every, key=lambda each: each[:2])
        }

    async def _metrics(self, request: Request) -> Answer:
        answers = await self._all(request)
        texts = [(name, each.body) for name, each in answers if each.status == 200]
        return Answer(200, merged_metrics(texts), TEXT) if texts else _first(answers)

    async def _sessions(self, request: Request) -> Answer:
        asked = {name: request.asked(name) for name in ("environment", "state")}
        first, count = request.number("offset", 0), min(request.number("limit", PAGE), MAX_PAGE)
        total = 0
        listed: list[Any] = []
        answers = await self._all(request.like(_query(asked, 0, 0)))
        heard = [(name, each) for name, each in answers if each.status != 503]
        for name, each in heard or answers:
            if each.status != 200:
                return each
            there = loads(each.body)["total"]
            start = max(0, first - total)
            if len(listed) < count and start < there:
                listed += await self._page_of(name, request.like(_query(asked, start, count - len(listed))))
            total += there
        return answer({"total": total, "offset": first, "sessions": listed})

    async def _page_of(self, name: str, request: Request) -> list[Any]:
        ask = self._asked().get(name)
        if ask is None:  # it has died meanwhile
            return []
        found = await ask(request)
        return list(loads(found.body)["sessions"]) if found.status == 200 else []

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
