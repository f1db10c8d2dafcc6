"""Who may ask, and whose a session is, when another server has the answer."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from ors import Limits
from ors.server import ApiKey
from ors.server.observe.events import CallFinished, Event
from tests.requirements import proves
from tests.support.commands import run
from tests.support.environments import Lab
from tests.support.in_process_cluster import ServerThread, linked_servers, minted, routing
from tests.support.raw_http import Raw

ORIGIN = "https://app.example"
ONE, TWO = {"X-API-Key": "secret-1"}, {"X-API-Key": "secret-2"}


class Guarded(Lab):
    private_fields: ClassVar[list[str]] = ["split"]

    @classmethod
    def name(cls) -> str:
        return "lab"


class Seen:
    """What the servers were told."""

    def __init__(self) -> None:
        self.traces: list[str] = []

    def observe(self, event: Event) -> None:
        if isinstance(event, CallFinished):
            self.traces.append(event.trace)


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerThread]]:
    keys = ["one=secret-1", ApiKey("two", "secret-2", private=True)]
    folder = tmp_path_factory.mktemp("links")
    limits = Limits(grace_seconds=0.1)
    with linked_servers(2, folder, [Guarded], api_keys=keys, cors_origins=[ORIGIN], limits=limits) as made:
        yield made


@pytest.fixture(scope="module")
def ways(keyed: list[ServerThread]) -> Iterator[list[Raw]]:
    """Each server, and a router with the first key."""
    urls = [one.raw.url for one in keyed]
    with routing(urls, "secret-1", cors_origins=[ORIGIN]) as router:
        yield [*(one.raw for one in keyed), router]


def test_a_session_belongs_to_its_key_wherever_it_lives(keyed: list[ServerThread], ways: list[Raw]) -> None:
    for slot in (0, 1):
        sid = keyed[slot].server.app.sessions.identity.new_session_id()
        assert ways[0].post("/create", {"task_spec": {}}, sid=sid, headers=TWO).status == 200
        for raw in ways:
            assert raw.call(sid, "nothing", headers=TWO).result()["ok"] is True
            assert raw.call(sid, "nothing", headers=ONE).status == 404
            assert raw.call(sid, "nothing").status == 401
            assert raw.call(sid, "nothing", headers={"X-API-Key": "guess"}).status == 401
            mine, theirs = (raw.get("/-/sessions", headers=key).json() for key in (TWO, ONE))
            assert sid in {row["sid"] for row in mine["sessions"]}
            assert sid not in {row["sid"] for row in theirs["sessions"]}
            assert raw.get("/-/metrics").status == 401


@proves("session.key")
@pytest.mark.parametrize("made", ["by-us", "by-a-client"])
def test_a_session_belongs_to_its_key_after_its_end_too(
    keyed: list[ServerThread], ways: list[Raw], made: str
) -> None:
    for number, raw in enumerate(ways):
        sid = f"ended-{number}"
        if made == "by-us":
            sid = keyed[1].server.app.sessions.identity.new_session_id()
        assert raw.post("/create", {"task_spec": {}}, sid=sid, headers=TWO).status == 200
        assert raw.post("/delete", sid=sid, headers=TWO).status == 200
        for way in ways:
            for headers, gone, deleted in ((TWO, 410, 200), (ONE, 404, 404)):
                assert way.post("/ping", sid=sid, headers=headers).status == gone
                assert way.call(sid, "nothing", headers=headers).status == gone
                assert way.post("/delete", sid=sid, headers=headers).status == deleted
                assert way("DELETE", f"/-/sessions/{sid}", headers=headers).status == deleted
        assert raw.post("/create", {"task_spec": {}}, sid=sid, headers=ONE).status == 200
        for way in ways:
            assert way.post("/ping", sid=sid, headers=ONE).status == 200
            assert way.post("/ping", sid=sid, headers=TWO).status == 404


def test_private_fields_stay_private_at_every_server(ways: list[Raw]) -> None:
    for raw in ways:
        for headers, seen in ((ONE, False), (TWO, True)):
            tasks = raw.post("/lab/tasks", {"split": "train"}, headers=headers).json()["tasks"]
            assert ("split" in tasks[0]) is seen


def test_chosen_origins_may_call_what_another_server_has(keyed: list[ServerThread], ways: list[Raw]) -> None:
    sid = keyed[1].server.app.sessions.identity.new_session_id()
    assert ways[0].post("/create", {"task_spec": {}}, sid=sid, headers=TWO).status == 200
    for raw in ways:
        asked = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}
        preflight = raw("OPTIONS", "/lab/call", headers=asked)
        assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (204, ORIGIN)
        answer = raw.call(sid, "nothing", headers={**TWO, "Origin": ORIGIN})
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        foreign = raw.call(sid, "nothing", headers={**TWO, "Origin": "https://evil.example"})
        assert (foreign.status, foreign.headers["ors-reason"]) == (403, "origin")


def test_without_keys_a_foreign_host_name_is_refused_at_once(tmp_path: Path) -> None:
    with (
        linked_servers(2, tmp_path, [Lab], limits=Limits(grace_seconds=0.1)) as made,
        routing([one.raw.url for one in made]) as router,
    ):
        sid = minted(made, 1)
        for raw in (made[0].raw, router):
            assert raw.post("/ping", sid=sid).status == 200
            turned = raw.post("/ping", sid=sid, headers={"Host": "evil.example"})
            assert (turned.status, turned.headers["ors-reason"]) == (403, "host")


def test_a_trace_goes_with_the_call(tmp_path: Path) -> None:
    seen, trace = Seen(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with linked_servers(2, tmp_path, [Lab], observers=[seen]) as made:
        sid = minted(made, 1)
        assert made[0].raw.call(sid, "nothing", headers={"traceparent": trace}).result()["ok"] is True
    assert seen.traces == [trace]


def test_a_router_open_to_the_network_needs_a_key_or_a_word() -> None:
    done = run("route", "--to", "127.0.0.1:1", "--host", "0.0.0.0", "--port", "0")
    assert (done.code, "--insecure" in done.err) == (2, True)


def test_a_router_may_stand_before_loopback_servers_under_any_name(tmp_path: Path) -> None:
    name = socket.gethostname()
    with (
        linked_servers(1, tmp_path, [Lab], api_keys=["k"]) as made,
        routing([made[0].raw.url], "k") as router,
    ):
        headers = {"Host": f"{name}:1", "X-API-Key": "k"}
        assert router.get("/list_environments", headers=headers).json() == ["lab"]
