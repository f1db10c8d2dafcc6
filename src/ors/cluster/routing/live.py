"""The live feed of all servers' sessions and traffic, merged into one."""

import asyncio
from collections import Counter
from heapq import nlargest
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

from ors._json import loads
from ors._protocol import EventDecoder
from ors.cluster.link.client import Forwarded
from ors.cluster.routing.peers import Peers
from ors.server.admin.live_sessions import SHOWN, TICK_SECONDS
from ors.server.admin.pages import LIVE_MAX_PAGE, PAGE
from ors.server.app import App
from ors.server.http.answers import Headers
from ors.server.http.requests import Request
from ors.server.http.streams import Feed, Outcome, Sink, Stream, event

FIRST_SECONDS = 0.1
"""How long to wait for the first events of all servers."""
_COUNTS = ("sessions", "running", "calls", "refused", "failed")
_SHARES = ("p50", "p95", "p99")
_Totals = dict[str, dict[str, float]]
"""Numbers of episodes by environment."""


def live(request: Request, peers: Peers, local: App | None) -> Feed:
    """Returns the feed of all servers, with the sessions that the request asks for, newest first.

    Only the `MAX_PAGE` newest sessions are listed: a page beyond them is the last of those.
    """
    return _MergedFeed(request, peers, local).feed


class _ServerFeed(Sink):
    """The sink of one server's feed: keeps the latest of each event."""

    def __init__(self) -> None:
        self._events = EventDecoder()
        self.over = False
        self.history: list[dict[str, Any]] = []
        self.point: dict[str, Any] | None = None
        self.total = 0
        self.sessions: list[dict[str, Any]] = []
        self.episodes: dict[str, Any] = {"totals": {}, "ended": []}

    def answer(self, outcome: Outcome) -> None:
        self.over = True
        if isinstance(outcome, Stream):
            outcome.leave()

    def whole(self, status: int, headers: Headers, body: bytes) -> bool:
        return True

    def head(self, status: int, headers: Headers, body: bytes = b"") -> None:
        self.part(body)

    def part(self, data: bytes) -> None:
        for each in self._events.feed(data):
            told = loads(each.data.encode())
            if each.event == "history":
                self.history = told
            elif each.event == "point":
                self.point = told
            elif each.event == "sessions":
                self.total, self.sessions = told["total"], told["sessions"]
            elif each.event == "episodes":
                self.episodes = told

    def end(self, data: bytes) -> bool:
        self.over = True
        return True

    def abort(self) -> None:
        self.over = True


class _MergedFeed:
    def __init__(self, request: Request, peers: Peers, local: App | None) -> None:
        self._count = min(request.number("limit", PAGE), LIVE_MAX_PAGE)
        self._first = min(request.number("offset", 0), LIVE_MAX_PAGE - self._count)
        wanted = {"environment": request.asked("environment"), "state": request.asked("state")}
        wanted |= {"offset": "0", "limit": str(self._first + self._count)}
        self._request = request.like(urlencode(wanted).encode())
        self._peers = peers
        self._local = local
        self._feeds: dict[str, _ServerFeed] = {}  # by the prefix of each server's session ids
        self._streams: dict[str, Stream] = {}
        self._own: Stream | None = None
        self._sent = self._sent_episodes = b""
        self._begun = False
        self._timer: asyncio.TimerHandle | None = None
        self.feed = Feed(self._open, self._close)

    def _open(self, feed: Feed) -> None:
        own = self._local.take(self._request, forwarded=True) if self._local is not None else None
        if isinstance(own, Feed) and self._local is not None:
            self._own = own
            me = self._local.sessions.identity
            own.begin(self._feeds.setdefault(me.id_prefix, _ServerFeed()))
        self._update()
        self._timer = asyncio.get_running_loop().call_later(FIRST_SECONDS, self._tick)

    def _close(self, feed: Feed) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._own is not None:
            self._own.leave()
        for stream in self._streams.values():
            stream.leave()

    def _update(self) -> None:
        """Follows servers that start or end while the feed is open."""
        for prefix in list(self._streams):
            if prefix not in self._peers.by_prefix or self._feeds[prefix].over:
                del self._streams[prefix], self._feeds[prefix]
        for peer in self._peers:
            if peer.prefix not in self._streams and peer.link is not None:
                self._feeds[peer.prefix] = feed = _ServerFeed()
                self._streams[peer.prefix] = stream = Forwarded(peer.link, self._request)
                stream.begin(feed)

    def _tick(self) -> None:
        if self._begun:
            self.feed.tell(event("point", _sum([each.point for each in self._feeds.values() if each.point])))
        else:
            self._begun = True
            self.feed.tell(event("history", _history(list(self._feeds.values()))))
        self._tell_episodes()
        page = self._page()
        if page != self._sent:
            self._sent = page
            self.feed.tell(page)
        self._update()
        self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _tell_episodes(self) -> None:
        told = [each.episodes for each in self._feeds.values()]
        ended = nlargest(SHOWN, (row for each in told for row in each["ended"]), key=lambda row: row["ended"])
        episodes = event("episodes", {"totals": _added([each["totals"] for each in told]), "ended": ended})
        if episodes != self._sent_episodes:
            self._sent_episodes = episodes
            self.feed.tell(episodes)

    def _page(self) -> bytes:
        # In the order of the servers, so that sessions of the same millisecond keep theirs on every page.
        every = [row for prefix in sorted(self._feeds) for row in self._feeds[prefix].sessions]
        rows = nlargest(self._first + self._count, every, key=lambda row: row["created"])
        shown = rows[self._first :]
        total = sum(each.total for each in self._feeds.values())
        return event("sessions", {"total": total, "offset": self._first, "sessions": shown})


def _history(feeds: list[_ServerFeed]) -> list[dict[str, Any]]:
    points = sorted((point for each in feeds for point in each.history), key=lambda point: point["at"])
    return [_sum(list(same)) for _, same in groupby(points, lambda point: round(point["at"]))]


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
