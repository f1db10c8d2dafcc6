"""The interface below /-/api/, without a browser."""

import re
import socket
from typing import Any

import pytest

from ors import Server
from ors.client import ASGITransport
from ors.server.admin.pages import page_files
from tests.requirements import proves
from tests.support.environments import Lab, Other
from tests.support.feeds import Following, following
from tests.support.in_process_cluster import routing
from tests.support.live_server import app_of, hosted, serving
from tests.support.raw_http import Raw


def test_the_page_is_served_with_a_strict_policy(raw: Raw) -> None:
    answer = raw.get("/-/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert raw.get("/-").headers["location"] == "/-/"
    script = raw.get("/-/page/app.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert script.headers["content-security-policy"] == policy


PAGE = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@proves("http.visit")
def test_a_browser_at_the_bare_address_is_led_to_the_inspector_and_a_program_is_not(raw: Raw) -> None:
    answer = raw.get("/", headers=PAGE)
    assert (answer.status, answer.headers["location"]) == (307, "/-/")
    assert raw("HEAD", "/", headers=PAGE).status == 307
    for headers in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
        assert raw.get("/", headers=headers).detail == "Not found; try /list_environments"
    assert raw.post("/", headers=PAGE).status == 404


@proves("http.visit")
def test_a_browser_is_led_to_the_inspector_by_routers_asgi_hosts_and_servers_with_keys() -> None:
    keyed = Server([Lab], inspector=True, api_keys=["secret"])
    with (
        serving(keyed) as url,
        hosted(Server([Lab], inspector=True)) as asgi,
        routing([url], "secret") as front,
    ):
        for raw in (Raw(url), Raw(asgi), front):
            assert raw.get("/", headers=PAGE).headers["location"] == "/-/"
        assert Raw(url).get("/").status == 401


def test_a_server_without_an_inspector_leads_nobody_there() -> None:
    with serving(Server([Lab, Other], inspector=False, api_keys=["secret"])) as url:
        assert Raw(url).get("/", headers=PAGE).status == 401
        assert Raw(url).get("/", headers=PAGE | {"X-API-Key": "secret"}).status == 404


@pytest.mark.parametrize(
    "path",
    ["/-/page/nothing.js", "/-/page/../__init__.py", "/-/page/%2e%2e/__init__.py", "/-/page/", "/-/api"],
)
def test_nothing_else_is_served(raw: Raw, path: str) -> None:
    assert raw.get(path).status == 404


def test_the_page_asks_no_other_server_for_anything() -> None:
    for path, answer in page_files().items():
        text = answer.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://[a-z0-9]", text), path


def test_environments_are_told_with_task_specific_tools(raw: Raw) -> None:
    lab, _ = raw.get("/-/api/environments").json()
    assert lab["name"] == "lab"
    assert lab["description"].startswith("What a tool does is in its name.")
    assert {"name": "extra", "type": "validation"} in lab["splits"]
    assert [tool["name"] for tool in lab["task_tools"]] == ["hint"]
    assert "hint" not in [tool["name"] for tool in lab["tools"]]


def test_it_is_off_where_others_can_reach_it_unless_enabled(alone: Raw) -> None:
    assert alone.get("/-/api/about").json()["live"] is True
    for server, status in [
        (Server([Lab], inspector=False), 404),
        (Server([Lab], inspector=True), 200),
    ]:
        with serving(server) as url:
            for path in ("/-/", "/-/page/app.js", "/-/api/about"):
                assert Raw(url).get(path).status == status
    open_to_all = Server([Lab], api_keys=["x"])
    open_to_all.runner("0.0.0.0")
    assert not app_of(open_to_all).inspecting


def test_with_keys_the_page_is_open_and_its_interface_is_not() -> None:
    with serving(Server([Lab], api_keys=["one=secret-1", "two=secret-2"])) as url:
        raw = Raw(url)
        sid = raw.session(headers={"X-API-Key": "secret-1"})
        for path in ("/-/", "/-/page/app.js"):
            assert raw.get(path).status == 200
        for path in ("/-/api/about", "/-/api/environments", "/-/api/live", f"/-/api/calls/{sid}"):
            assert raw.get(path).status == 401
        theirs = {"X-API-Key": "secret-2"}
        assert raw.get(f"/-/api/calls/{sid}", headers=theirs).status == 404
        with following(raw, "/-/api/live", **theirs) as feed:
            assert feed.next("sessions")["total"] == 0


def test_other_origins_are_refused(raw: Raw) -> None:
    for method, path in [("GET", "/-/api/live"), ("DELETE", "/-/sessions/x")]:
        assert raw(method, path, headers={"Origin": "https://evil.example"}).status == 403


def test_the_live_feed_tells_sessions_and_points() -> None:
    with serving(Server([Lab, Other])) as url:
        raw = Raw(url)
        with following(raw, "/-/api/live?environment=lab&limit=1") as feed:
            assert feed.next("history") == []
            assert feed.next("sessions")["total"] == 0
            raw.session("other")
            raw.session()
            sid = raw.session(task={"id": "x" * 100, "list": [1], "n": 1})
            raw.call(sid, "reward", {"value": 0.5})
            raw.call(sid, "boom", {"text": "x"})
            total = {"calls": 0, "failed": 0}
            while total["calls"] < 2:
                point = feed.next("point")
                total = {key: total[key] + point[key] for key in total}
            assert total == {"calls": 2, "failed": 1}
        with following(raw, "/-/api/live?environment=lab&limit=1") as feed:
            assert sum(one["calls"] for one in feed.next("history")) == 2
            page = feed.next("sessions")
            assert page["total"] == 2
            [row] = page["sessions"]
            assert (row["sid"], row["calls"], row["reward"], row["state"]) == (sid, 2, 0.5, "ready")
            assert row["task"] == {"id": "x" * 59 + "…", "list": "[…]", "n": 1}
        assert raw.get("/-/api/live?limit=x").status == 400


def test_the_calls_of_a_session_are_told_as_they_happen(raw: Raw) -> None:
    sid = raw.session(task={"n": 3})
    before = raw.call(sid, "echo", {"text": "before"})
    with following(raw, f"/-/api/calls/{sid}") as feed:
        assert feed.next("session")["task"] == {"n": 3}
        [kept] = feed.next("before")
        assert kept["stream"].encode() == before.body
        answer = raw.call(sid, "echo", {"text": "now\u2028"})
        started = feed.next("started")
        assert (started["tool"], started["input"]) == ("echo", {"text": "now\u2028"})
        ended = feed.next("ended")
        assert ended["task_id"] == started["task_id"]
        assert ended["stream"].encode() == answer.body
        raw.call(sid, "echo_sync", {"text": "y" * 2**21})
        feed.next("started")
        large = feed.next("ended")
        assert large["stream"] is None
        assert large["bytes"] > 2**21
        raw.post("/delete", sid=sid)
        while feed.next("session")["state"] != "deleted":  # the calls may be told first
            pass
    with following(raw, f"/-/api/calls/{sid}") as feed:
        row = feed.next("session")
        assert (row["state"], row["calls"], row["reward"], row["outcome"]) == ("ended", 3, None, "unscored")
        calls = feed.next("before")
        assert [call["input"] and call["input"]["text"] for call in calls] == ["before", "now\u2028", None]
        assert [(call["stream"] or "").encode() for call in calls] == [before.body, answer.body, b""]
        assert feed.next("over") is None
    assert raw.get("/-/api/calls/unknown").status == 404


def test_calls_that_nobody_watched_are_told_with_their_inputs(raw: Raw) -> None:
    sid = raw.session()
    for number in range(3):
        raw.call(sid, "echo", {"text": f"call {number}"})
    with following(raw, f"/-/api/calls/{sid}") as feed:
        assert [call["input"] for call in feed.next("before")] == [{"text": f"call {n}"} for n in range(3)]


def test_figures_of_the_last_minutes_do_not_need_a_reader() -> None:
    with serving(Server([Lab])) as url:
        raw = Raw(url)
        sid = raw.session()
        raw.call(sid, "reward", {"value": 1.0, "finished": True})
        raw.call(sid, "boom", {"text": "x"})

        def history() -> list[Any]:
            with following(raw, "/-/api/live") as feed:
                points: list[Any] = feed.next("history")
                return points

        points: list[Any] = []
        while sum(point["calls"] for point in points) < 2:
            points = history()
        assert sum(point["refused"] + point["failed"] for point in points) == 1
        assert sum(point["episodes"].get("lab", {}).get("solved", 0) for point in points) == 1
        assert max(point["p99"] for point in points if point["p99"] is not None) > 0


def test_an_ended_session_is_shown_to_its_own_key_only() -> None:
    with serving(Server([Lab], api_keys=["one=secret-1", "two=secret-2"])) as url:
        raw = Raw(url)
        mine, theirs = {"X-API-Key": "secret-1"}, {"X-API-Key": "secret-2"}
        for text, headers in (("mine", mine), ("theirs", theirs)):
            raw.post("/create", {"task_spec": {"id": text}}, sid="shared-id", headers=headers)
            raw.get("/lab/prompt", sid="shared-id", headers=headers)
            raw.call("shared-id", "echo", {"text": text}, headers=headers)
            raw.post("/delete", sid="shared-id", headers=headers)
        for text, headers in (("mine", mine), ("theirs", theirs)):
            told = raw.get("/-/api/calls/shared-id", headers=headers).body.decode()
            assert text in told
            assert ({"mine", "theirs"} - {text}).pop() not in told
        assert raw.get("/-/api/calls/shared-id").status == 401


def test_looking_does_not_keep_a_session_alive(raw: Raw) -> None:
    sid = raw.session()

    def seen() -> float:
        sessions = raw.get("/-/sessions?limit=1000").json()["sessions"]
        return next(float(one["age_seconds"] - one["idle_seconds"]) for one in sessions if one["sid"] == sid)

    first = seen()
    with following(raw, f"/-/api/calls/{sid}") as feed:
        feed.next("session")
    assert seen() == pytest.approx(first, abs=0.01)


def test_private_fields_are_not_told() -> None:
    class Guarded(Lab):
        private_fields = ["answer"]

    with serving(Server([Guarded])) as url:
        raw = Raw(url)
        sid = raw.session("guarded", task={"n": 1, "answer": 42})
        with following(raw, "/-/api/live") as feed:
            assert feed.next("sessions")["sessions"][0]["task"] == {"n": 1}
        with following(raw, f"/-/api/calls/{sid}") as feed:
            assert feed.next("session")["task"] == {"n": 1}


def test_with_nobody_looking_nobody_is_told() -> None:
    server = Server([Lab])
    with serving(server) as url:
        raw = Raw(url)
        observers = app_of(server).shared.observers
        quiet = len(observers.all)
        sid = raw.session()
        with following(raw, "/-/api/live") as live, following(raw, f"/-/api/calls/{sid}") as calls:
            live.next("sessions")
            calls.next("before")
            assert len(observers.all) == quiet
            assert list(observers.watched) == [sid]
        raw.call(sid, "nothing")
        assert raw.get("/health").status == 200
        for _ in range(200):
            raw.call(sid, "nothing")
            if len(observers.all) == quiet and not observers.watched:
                break
        assert len(observers.all) == quiet
        assert observers.watched == {}


def test_a_watcher_who_does_not_read_is_passed_over_and_told_so() -> None:
    with serving(Server([Lab])) as url:
        raw = Raw(url)
        sid = raw.session()
        with socket.create_connection((raw.host, raw.port)) as slow:
            slow.sendall(f"GET /-/api/calls/{sid} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            slow.settimeout(20)
            got = slow.recv(100)
            for _ in range(60):
                raw.call(sid, "echo", {"text": "z" * 500_000})
            while b"event: missed" not in got[-10_000_000:]:
                part = slow.recv(2**20)
                assert part
                got += part
                if not got.endswith(b"z"):
                    raw.call(sid, "nothing")


async def test_feeds_stream_under_any_asgi_server() -> None:
    transport = ASGITransport(Server([Lab], inspector=True).app)
    try:
        response = await transport.send("GET", "/-/api/live", {}, None)
        assert response.status == 200
        received = b""
        for name in (b"history", b"sessions", b"point"):  # some may arrive together
            while b"event: " + name not in received:
                received += await anext(response.body)
        response.close()
    finally:
        await transport.close()


def test_a_server_with_watchers_stops_and_ends_their_streams() -> None:
    with serving(Server([Lab])) as url:
        connection = Raw(url).connection()
        connection.request("GET", "/-/api/live")
        response = connection.getresponse()
        Following(response).next("sessions")
    response.read()  # raises if the stream was cut off
    connection.close()
