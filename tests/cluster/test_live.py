"""Looking at the sessions of several servers through one of them, or through a router."""

import asyncio
import json
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from ors import Limits
from ors._protocol import EventDecoder
from ors.cluster.servers import LinkedServer
from ors.server.http.answers import Headers
from ors.server.http.requests import Request
from ors.server.http.streams import Feed, Later, Outcome, Sink
from tests.support.environments import Lab
from tests.support.feeds import following
from tests.support.in_process_cluster import ServerThread, linked_servers, minted, routing
from tests.support.raw_http import Raw
from tests.support.waiting import until


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerThread]]:
    limits = Limits(grace_seconds=0.1)
    with linked_servers(2, tmp_path_factory.mktemp("links"), [Lab], limits=limits) as made:
        yield made


@pytest.fixture(scope="module")
def views(pair: list[ServerThread]) -> Iterator[list[Raw]]:
    """Where one can look from: each server, and a router."""
    with routing([one.raw.url for one in pair]) as router:
        yield [*(one.raw for one in pair), router]


def test_the_sessions_of_all_servers_are_shown_the_newest_first(
    pair: list[ServerThread], views: list[Raw]
) -> None:
    sids = [minted(pair, slot) for slot in (0, 1, 0)]
    for raw in views:
        with following(raw, "/-/api/live?limit=2") as feed:
            assert isinstance(feed.next("history"), list)
            told = feed.next("sessions")
            while told["total"] < sum(one.sessions for one in pair):
                told = feed.next("sessions")
            assert len(told["sessions"]) == 2
            created = [row["created"] for row in told["sessions"]]
            assert created == sorted(created, reverse=True)
            point = feed.next("point")
            while point["sessions"] != told["total"]:
                point = feed.next("point")
        with following(raw, "/-/api/live?limit=2&offset=1") as feed:
            page = feed.next("sessions")
            while page["total"] < told["total"]:
                page = feed.next("sessions")
            assert page["sessions"][0]["sid"] == told["sessions"][1]["sid"]
    for sid in sids:
        assert views[0].post("/delete", sid=sid).status == 200


def test_the_calls_of_all_servers_are_counted(pair: list[ServerThread], views: list[Raw]) -> None:
    sids = [minted(pair, slot) for slot in (0, 1)]
    for raw in views:
        with following(raw, "/-/api/live") as feed:
            feed.next("point")
            for sid in sids:
                assert raw.call(sid, "nothing").result()["ok"] is True
            seen = 0
            while seen < 2:
                seen += feed.next("point")["calls"]
            assert seen == 2


def test_the_newest_2000_sessions_of_all_servers_are_listed_and_a_page_beyond_them_is_the_last(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with (
        linked_servers(2, tmp_path_factory.mktemp("links"), [Lab], limits=Limits(grace_seconds=0.1)) as made,
        routing([one.raw.url for one in made]) as router,
    ):
        everywhere = [made[0].raw, made[1].raw, router]
        newest = _crowd(made, 2600)
        for number, first in enumerate((0, 1900, 1950)):
            _shows(everywhere[number % 3], f"offset={first}&limit=50", newest, first, 50)
        for number, first in enumerate((1951, 2000, 10**18)):
            _shows(everywhere[number % 3], f"offset={first}&limit=50", newest, 1950, 50)
        _shows(router, "offset=1&limit=3000", newest, 0, 2000)
        with following(router, "/-/api/live?offset=30&limit=10&environment=other") as feed:
            assert feed.next("sessions") == {"total": 0, "offset": 30, "sessions": []}
        _leave(made)


def _shows(raw: Raw, query: str, newest: list[str], first: int, count: int) -> None:
    with following(raw, f"/-/api/live?{query}") as feed:
        told = feed.next("sessions")
        while told["total"] < len(newest):
            told = feed.next("sessions")
        assert (told["total"], told["offset"]) == (len(newest), first)
        assert [row["sid"] for row in told["sessions"]] == newest[first : first + count]


def _crowd(made: list[ServerThread], each: int) -> list[str]:
    """So many sessions on each server, created in turn, two at a time; gives the newest first."""
    sids: list[tuple[float, int, str]] = []

    async def fill(slot: int, now: float) -> None:
        app = made[slot].server.app
        for n in range(each):
            sid = app.sessions.identity.new_session_id()
            at = now + (n // 2) * 0.02 + slot * 0.01  # the servers' clocks differ by milliseconds
            app.sessions.reserve(sid, "lab", at, app.limits)
            sids.append((at, n, sid))

    now = time.monotonic() - each * 0.01
    for slot, one in enumerate(made):
        asyncio.run_coroutine_threadsafe(fill(slot, now), one.server.loop).result(20)
    return [sid for _, _, sid in sorted(sids, reverse=True)]


def _leave(made: list[ServerThread]) -> None:
    for one in made:
        one.server.app.sessions._live.clear()


def test_a_session_is_watched_from_everywhere(pair: list[ServerThread], views: list[Raw]) -> None:
    for slot in (0, 1):
        sid = minted(pair, slot)
        for raw in views:
            with following(raw, f"/-/api/calls/{sid}") as feed:
                assert feed.next("session")["sid"] == sid
                views[0].call(sid, "echo", {"text": "seen"})
                assert feed.next("started")["input"] == {"text": "seen"}
                assert "seen" in feed.next("ended")["stream"]
            assert not pair[slot].server.app.shared.observers.watched.keys() - {sid}
            sandbox = raw.get(f"/-/api/sandbox/{sid}")
            assert (sandbox.status, sandbox.body) == (200, b"null")


def _cut(server: LinkedServer) -> None:
    for peer in server.peers:
        assert peer.link is not None
        peer.link.cut()


class Seen(Sink):
    """Collects what a feed tells."""

    def __init__(self) -> None:
        self._events, self.total = EventDecoder(), 0
        self.feed: Feed | None = None

    def answer(self, outcome: Outcome) -> None:
        assert isinstance(outcome, Feed)
        self.feed = outcome
        outcome.begin(self)

    def whole(self, status: int, headers: Headers, body: bytes) -> bool:
        return True

    def head(self, status: int, headers: Headers, body: bytes = b"") -> None:
        self.part(body)

    def part(self, data: bytes) -> None:
        for each in self._events.feed(data):
            if each.event == "sessions":
                self.total = json.loads(each.data)["total"]

    def end(self, data: bytes) -> bool:
        return True

    def abort(self) -> None: ...


async def _opened_as_links_break(server: LinkedServer) -> Seen:
    """Opens a feed in the moment in which all links are found broken."""
    host = urlsplit(server.url).netloc.encode()
    coming, seen = server.app.take(Request("GET", "/-/api/live", b"", {b"host": host}, b"")), Seen()
    assert isinstance(coming, Later)
    _cut(server)
    coming.begin(seen)
    return seen


async def _until(seen: Seen, total: int) -> None:
    await until(lambda: seen.total == total, f"{total} sessions are seen")


def test_a_feed_goes_on_when_links_to_other_servers_break(tmp_path_factory: pytest.TempPathFactory) -> None:
    with linked_servers(4, tmp_path_factory.mktemp("links"), [Lab], limits=Limits(grace_seconds=0.1)) as made:
        server, loop = made[0].server, made[0].server.loop
        for slot in range(4):
            minted(made, slot)
        seen = asyncio.run_coroutine_threadsafe(_opened_as_links_break(server), loop).result(20)
        asyncio.run_coroutine_threadsafe(_until(seen, 4), loop).result(20)
        loop.call_soon_threadsafe(_cut, server)
        minted(made[3:], 0)
        asyncio.run_coroutine_threadsafe(_until(seen, 5), loop).result(20)
        assert seen.feed is not None
        loop.call_soon_threadsafe(seen.feed.leave)


def test_wrong_questions_are_refused_as_by_one_server(pair: list[ServerThread], views: list[Raw]) -> None:
    for raw in views:
        assert raw.get("/-/api/live?offset=x").status == 400
        assert raw.get("/-/api/calls/nobody").status == 404
        assert raw.get("/-/").status == 200
        assert raw.get("/-/page/app.js").status == 200


def test_a_server_without_an_inspector_shows_nothing_through_a_router(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with (
        linked_servers(1, tmp_path_factory.mktemp("links"), [Lab], inspector=False) as made,
        routing([made[0].raw.url]) as router,
    ):
        for raw in (made[0].raw, router):
            assert raw.get("/-/api/live").status == 404
            assert raw.get("/-/").status == 404


def test_a_server_that_ends_ends_its_feeds(tmp_path_factory: pytest.TempPathFactory) -> None:
    with linked_servers(2, tmp_path_factory.mktemp("links"), [Lab], limits=Limits(grace_seconds=0.1)) as made:
        sid = minted(made, 1)
        with following(made[0].raw, f"/-/api/calls/{sid}") as feed:
            assert feed.next("session")["sid"] == sid
            made[1].stop()
            assert "ended" not in dict(feed)  # and it is over
