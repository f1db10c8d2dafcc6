"""Requests that belong to another server: forwarded at most once, streamed both ways, lost out loud."""

import http.client
import json
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ors import Limits
from tests.support.environments import Lab, Other
from tests.support.in_process_cluster import ServerThread, linked_servers, minted
from tests.support.raw_http import Raw


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerThread]]:
    folder = tmp_path_factory.mktemp("links")
    with linked_servers(2, folder, [Lab, Other], limits=Limits(ping_seconds=0.05, grace_seconds=0.1)) as made:
        yield made


def test_a_session_is_served_through_every_server(pair: list[ServerThread]) -> None:
    for slot in (0, 1):
        sid = minted(pair, slot, task={"n": 7})
        for one in pair:
            assert one.raw.call(sid, "echo", {"text": "hé"}).result()["output"]["blocks"][0]["text"] == "hé"
            assert one.raw.post("/ping", sid=sid).status == 200
            assert one.raw.get("/lab/prompt", sid=sid).json()[0]["text"] == "task 7"
            assert one.raw.get("/lab/task_tools", sid=sid).status == 200
        assert pair[1 - slot].raw.post("/delete", sid=sid).json() == {"sid": sid}
        assert pair[1 - slot].raw.post("/ping", sid=sid).status == 410


def test_answers_are_the_same_through_every_server(pair: list[ServerThread]) -> None:
    sid = minted(pair, 0)
    for path in ("/lab/task_tools", "/lab/prompt", "/nowhere/prompt", "/lab/call", "/ping"):
        direct, forwarded = (one.raw.get(path, sid=sid) for one in pair)
        assert (direct.status, direct.body) == (forwarded.status, forwarded.body), path
        same = {"content-type", "allow", "ors-version", "ors-reason", "cache-control", "content-length"}
        assert {k: direct.headers.get(k) for k in same} == {k: forwarded.headers.get(k) for k in same}, path


def test_new_sessions_are_spread_by_load(pair: list[ServerThread]) -> None:
    before = [one.sessions for one in pair]
    for _ in range(20):
        sid = pair[0].raw.post("/create_session").json()["sid"]
        assert pair[0].raw.post("/create", {"task_spec": {}}, sid=sid).status == 200
    grown = [one.sessions - count for one, count in zip(pair, before, strict=True)]
    assert sum(grown) == 20
    assert min(grown) >= 5  # about even: the other's load is known a quarter of a second late


def test_a_new_session_is_where_its_client_is_connected_if_loads_are_about_even(tmp_path: Path) -> None:
    with linked_servers(2, tmp_path, [Lab]) as made:
        for slot, one in enumerate(made):
            assert int(one.raw.post("/create_session").json()["sid"][:4], 16) == slot


def test_short_episodes_stay_where_their_client_is_connected(tmp_path: Path) -> None:
    with linked_servers(2, tmp_path, [Lab]) as (one, _):
        for _ in range(50):
            sid = one.raw.post("/create_session").json()["sid"]
            assert int(sid[:4], 16) == 0
            assert one.raw.post("/create", {"task_spec": {}}, sid=sid).status == 200
            assert one.raw.post("/delete", sid=sid).status == 200


def test_a_server_that_is_the_only_one_gives_as_many_ids_as_are_asked_for(tmp_path: Path) -> None:
    with linked_servers(1, tmp_path, [Lab]) as (one,):
        assert len({one.raw.post("/create_session").json()["sid"] for _ in range(10)} - {""}) == 10


def test_an_id_of_a_server_that_is_not_known_yet_waits_for_it(tmp_path: Path) -> None:
    with linked_servers(1, tmp_path, [Lab]) as (one,), ThreadPoolExecutor(1) as pool:
        late = ServerThread(5, tmp_path, [Lab])
        late.start()
        try:
            sid = late.server.app.sessions.identity.new_session_id()
            made = pool.submit(one.raw.post, "/create", {"task_spec": {}}, sid=sid)
            with pytest.raises(TimeoutError):
                made.result(0.3)
            one.meet([late.address])
            assert made.result(20).status == 200
            assert (one.sessions, late.sessions) == (0, 1)
        finally:
            late.stop()


def test_a_forwarded_stream_opens_at_once_pings_and_ends(pair: list[ServerThread]) -> None:
    id = uuid.uuid4().hex
    sid = minted(pair, 0, task={"id": id})
    with pair[1].raw.opened(sid, "hold") as call:
        assert Lab.gates[f"{id}.held"].wait(20)
        assert call.response.read1(100).startswith(b":")
        Lab.gates[f"{id}.hold"].set()
        assert call.rest().events()[-1][0] == "end"
    assert Lab.counts[f"{id}.hold"] == 1


def test_a_call_is_rejoined_through_another_server(pair: list[ServerThread]) -> None:
    id = uuid.uuid4().hex
    sid = minted(pair, 0, task={"id": id})
    with pair[1].raw.opened(sid, "hold") as call:
        assert Lab.gates[f"{id}.held"].wait(20)
        task_id = call.task_id
    Lab.gates[f"{id}.hold"].set()
    for one in pair:
        assert one.raw.call(sid, "hold", task_id=task_id).result()["ok"] is True
    assert Lab.counts[f"{id}.hold"] == 1


@pytest.mark.parametrize("size", [0, 3000, 70_000, 3_000_000])
def test_results_of_every_length_arrive_whole(pair: list[ServerThread], size: int) -> None:
    sid, text = minted(pair, 1), "xyz "[:4] * (size // 4)
    answer = pair[0].raw.call(sid, "echo", {"text": text})
    assert answer.result()["output"]["blocks"][0]["text"] == text


def test_a_client_that_does_not_read_holds_up_nobody(pair: list[ServerThread]) -> None:
    sid, other = minted(pair, 1), minted(pair, 1)
    slow = pair[0].raw.connection()
    body = json.dumps({"name": "echo", "input": {"text": "long " * 4_000_000}})
    slow.request("POST", "/lab/call", body, {"X-Session-ID": sid})
    for _ in range(20):
        assert pair[0].raw.call(other, "nothing").result()["ok"] is True
    response = slow.getresponse()
    assert len(response.read()) > 20_000_000
    slow.close()


def test_a_client_that_leaves_costs_the_link_nothing(pair: list[ServerThread]) -> None:
    id = uuid.uuid4().hex
    sid, other = minted(pair, 1, task={"id": id}), minted(pair, 1)
    with pair[0].raw.opened(sid, "hold"):
        pass
    Lab.gates[f"{id}.hold"].set()
    assert pair[0].raw.call(other, "nothing").result()["ok"] is True


def test_ids_that_clients_made_are_found_through_every_server(pair: list[ServerThread]) -> None:
    for number in range(8):
        sid = f"abc-{uuid.uuid4().hex}-{number}"
        created = pair[number % 2].raw.post("/create", {"task_spec": {"n": number}}, sid=sid)
        assert created.status == 200
        for one in pair:
            assert one.raw.get("/lab/prompt", sid=sid).json()[0]["text"] == f"task {number}"
            assert one.raw.post("/create", {"task_spec": {}}, sid=sid).status == 400
        assert pair[0].raw.post("/delete", sid=sid).status == 200
        assert {one.raw.post("/ping", sid=sid).status for one in pair} == {410}
        assert pair[1].raw.post("/create", {"task_spec": {}}, sid=sid).status == 200


def test_of_many_creations_at_all_servers_one_succeeds(pair: list[ServerThread]) -> None:
    for _ in range(5):
        sid = f"one-{uuid.uuid4().hex}"
        with ThreadPoolExecutor(8) as pool:
            asked = [
                pool.submit(pair[n % 2].raw.post, "/create", {"task_spec": {}}, sid=sid) for n in range(8)
            ]
        assert sorted(each.result().status for each in asked) == [200] + [400] * 7


def test_an_unknown_id_is_404_and_a_lost_one_410_through_every_server(pair: list[ServerThread]) -> None:
    old = {slot: f"{slot:04x}0000-0001-8abc-8def-0123456789ab" for slot in (0, 1)}
    for one in pair:
        assert one.raw.post("/ping", sid="nobody").status == 404
        for slot in (0, 1):
            answer = one.raw.call(old[slot], "nothing")
            assert (answer.status, answer.headers["ors-reason"]) == (410, "worker_lost")
            assert answer.detail.startswith("Session lost")
            assert one.raw.get("/lab/tools", sid=old[slot]).status == 200
            assert one.raw.post("/delete_session", sid=old[slot]).status == 200


def test_the_pages_show_all_servers(pair: list[ServerThread]) -> None:
    sids = {minted(pair, slot) for slot in (0, 1) for _ in range(3)}
    for one in pair:
        total = sum(each.sessions for each in pair)
        told = one.raw.get("/-/sessions?limit=1000").json()
        assert told["total"] == total == len(told["sessions"])
        assert sids <= {session["sid"] for session in told["sessions"]}
        paged = [one.raw.get(f"/-/sessions?offset={n}&limit=1").json()["sessions"] for n in range(total)]
        assert [session["sid"] for (session,) in paged] == [session["sid"] for session in told["sessions"]]
        text = one.raw.get("/-/metrics").body.decode()
        assert 'ors_calls_running{server="0"}' in text
        assert 'ors_calls_running{server="1"}' in text
        assert text.count("# HELP ors_calls_running") == 1
        assert one.raw.get("/-/health/ready").status == 200
        assert one.raw("DELETE", f"/-/sessions/{sids.pop()}").status == 200


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[list[ServerThread]]:
    with linked_servers(2, tmp_path, [Lab], limits=Limits(grace_seconds=0.1)) as made:
        yield made


def test_a_server_that_dies_in_a_call_ends_its_stream_with_an_error_event(mortal: list[ServerThread]) -> None:
    id = uuid.uuid4().hex
    sid = minted(mortal, 1, task={"id": id})
    quick = minted(mortal, 1, task={"id": id + "q", "setup_gate": True})
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(mortal[0].raw.get("/lab/prompt", sid=quick)))
    waiting.start()
    with mortal[0].raw.opened(sid, "stay") as call:
        mortal[1].cut()
        assert call.rest().error().startswith("Session lost: ")
    waiting.join(20)
    assert found[0].status == 410
    Lab.gates[f"{id}q.setup"].set()
    for path in ("/ping", "/delete"):
        assert mortal[0].raw.post(path, sid=sid).status == 410
    assert mortal[0].raw("DELETE", f"/-/sessions/{sid}").status == 410
    assert mortal[0].raw.get(f"/-/api/calls/{sid}").status == 410
    lost = mortal[0].raw.call(sid, "nothing")
    assert (lost.status, lost.headers["ors-reason"]) == (410, "worker_lost")
    again = mortal[0].raw.post("/create", {"task_spec": {}}, sid=sid)
    assert (again.status, again.headers["retry-after"]) == (503, "1")
    new = mortal[0].raw.post("/create_session").json()["sid"]
    assert mortal[0].raw.post("/create", {"task_spec": {}}, sid=new).status == 200


def test_a_link_asks_for_the_key_that_servers_ask_for(tmp_path: Path) -> None:
    with linked_servers(2, tmp_path, [Lab], api_keys=["a=one", "b=two"]) as made:
        raw: Raw = made[0].raw
        assert raw.get("/-/link", headers={"Upgrade": "ors-link", "Connection": "upgrade"}).status == 401
        key = {"X-API-Key": "two"}
        for _ in range(4):
            sid = raw.post("/create_session", headers=key).json()["sid"]
            assert raw.post("/create", {"task_spec": {}}, sid=sid, headers=key).status == 200
            assert raw.call(sid, "nothing", headers=key).result()["ok"] is True
            assert raw.post("/ping", sid=sid, headers={"X-API-Key": "one"}).status == 404
            assert raw.post("/ping", sid=sid).status == 401


def test_what_is_no_frame_closes_the_link(pair: list[ServerThread]) -> None:
    raw = pair[0].raw
    connection = http.client.HTTPConnection(raw.host, raw.port, timeout=10)
    connection.connect()
    connection.sock.sendall(
        b"GET /-/link HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: ors-link\r\n\r\n"
        + b"\xff" * 100
    )
    assert connection.sock.makefile("rb").read().startswith(b"HTTP/1.1 101 ")
    connection.close()
