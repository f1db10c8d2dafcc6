"""Looking at the sessions of several servers through one of them, or through a router."""

from collections.abc import Iterator

import pytest

from ors import Limits
from tests.cluster.floor import Door, doors, minted, routing
from tests.feeds import following
from tests.lab import Lab
from tests.raw import Raw


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Door]]:
    limits = Limits(grace_seconds=0.1)
    with doors(2, tmp_path_factory.mktemp("links"), [Lab], limits=limits) as made:
        yield made


@pytest.fixture(scope="module")
def views(pair: list[Door]) -> Iterator[list[Raw]]:
    """Where one can look from: each door, and a router."""
    with routing([door.raw.url for door in pair]) as router:
        yield [*(door.raw for door in pair), router]


def test_the_sessions_of_all_servers_are_shown_the_newest_first(pair: list[Door], views: list[Raw]) -> None:
    sids = [minted(pair, slot) for slot in (0, 1, 0)]
    for raw in views:
        with following(raw, "/-/api/live?limit=2") as feed:
            assert isinstance(feed.next("history"), list)
            told = feed.next("sessions")
            while told["total"] < sum(door.sessions for door in pair):
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


def test_the_calls_of_all_servers_are_counted(pair: list[Door], views: list[Raw]) -> None:
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


def test_a_session_is_watched_from_everywhere(pair: list[Door], views: list[Raw]) -> None:
    for slot in (0, 1):
        sid = minted(pair, slot)
        for raw in views:
            with following(raw, f"/-/api/calls/{sid}") as feed:
                assert feed.next("session")["sid"] == sid
                views[0].call(sid, "echo", {"text": "seen"})
                assert feed.next("started")["input"] == {"text": "seen"}
                assert "seen" in feed.next("ended")["stream"]
            assert not pair[slot].member.app.house.observers.watched.keys() - {sid}


def test_wrong_questions_are_refused_as_by_one_server(pair: list[Door], views: list[Raw]) -> None:
    for raw in views:
        assert raw.get("/-/api/live?offset=x").status == 400
        assert raw.get("/-/api/calls/nobody").status == 404
        assert raw.get("/-/").status == 200
        assert raw.get("/-/page/app.js").status == 200


def test_a_server_without_an_inspector_shows_nothing_through_a_router(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with (
        doors(1, tmp_path_factory.mktemp("links"), [Lab], inspector=False) as made,
        routing([made[0].raw.url]) as router,
    ):
        for raw in (made[0].raw, router):
            assert raw.get("/-/api/live").status == 404
            assert raw.get("/-/").status == 404


def test_a_server_that_ends_ends_its_feeds(tmp_path_factory: pytest.TempPathFactory) -> None:
    with doors(2, tmp_path_factory.mktemp("links"), [Lab], limits=Limits(grace_seconds=0.1)) as made:
        sid = minted(made, 1)
        with following(made[0].raw, f"/-/api/calls/{sid}") as feed:
            assert feed.next("session")["sid"] == sid
            made[1].stop()
            assert "ended" not in dict(feed)  # and it is over
