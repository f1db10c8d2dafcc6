"""Sessions that live: nobody is told that they are lost, whatever becomes of what stands before them."""

import http.client
import os
import signal
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from ors import Limits
from ors.cluster import peers, router
from ors.server.connections.link import LinkServer
from ors.server.sessions.shared import new_incarnation
from tests.support.commands import running
from tests.support.environments import Lab, Other
from tests.support.in_process_cluster import ServerThread, linked_servers, minted, routing
from tests.support.raw_http import Raw
from tests.support.ray_cluster import frozen
from tests.support.worker_command import YARD, crew


@pytest.mark.long
def test_a_worker_that_is_replaced_stays_for_the_calls_that_it_forwards(tmp_path: Path) -> None:
    with crew(tmp_path, 2, "--grace-seconds", "0.5") as made, ThreadPoolExecutor(8) as pool:
        # Each over a connection of its own: about half of them are at the other worker.
        sids = [made.session(1) for _ in range(8)]
        calls = [
            pool.submit(made.raw.call, sid, "wait", {"name": sid, "seconds": 3.0}, "yard") for sid in sids
        ]
        made.until(lambda: len(made.traces()) == 8)
        made.process.send_signal(signal.SIGHUP)
        assert [call.result(30).result()["ok"] for call in calls] == [True] * 8
        assert sorted(made.traces()) == sorted(sids)


def test_a_server_that_ends_breaks_what_it_forwards_and_the_client_comes_back(tmp_path: Path) -> None:
    id = uuid.uuid4().hex
    with linked_servers(2, tmp_path, [Lab], limits=Limits(grace_seconds=0.1)) as made:
        sid = minted(made, 1, task={"id": id})
        with made[0].raw.opened(sid, "hold_async") as call:
            made[0].server.should_exit = True
            with pytest.raises(http.client.IncompleteRead) as broken:
                call.rest()
            assert b"event: error" not in broken.value.partial
        Lab.gates[f"{id}.hold"].set()
        again = made[1].raw.call(sid, "hold_async", task_id=call.task_id)
        assert again.result()["ok"] is True
        assert Lab.counts[f"{id}.hold_async"] == 1


def test_a_body_over_the_limit_of_a_server_is_refused_alone(tmp_path: Path) -> None:
    id = uuid.uuid4().hex
    with (
        linked_servers(1, tmp_path, [Lab], limits=Limits(body_bytes=300_000)) as (one,),
        routing([one.raw.url]) as router,
    ):
        sid = router.session(task={"id": id})
        with router.opened(sid, "hold_async") as call:
            long = router.call(router.session(), "echo", {"text": "x" * 5_000_000})
            assert (long.status, long.headers["ors-reason"]) == (413, "limit")
            assert "300000 bytes" in long.detail
            fits = router.call(router.session(), "echo", {"text": "x" * 299_000})
            assert fits.result()["ok"] is True
            Lab.gates[f"{id}.hold"].set()
            assert call.rest().result()["ok"] is True


@contextmanager
def alone(slot: int, folder: Path, *environments: type) -> Iterator[ServerThread]:
    made = ServerThread(slot, folder, environments)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def test_servers_that_serve_something_else_keep_their_sessions_and_get_no_new_ones(tmp_path: Path) -> None:
    with ExitStack() as stack:
        old = stack.enter_context(alone(0, tmp_path, Lab))
        _later_than(old)
        new = stack.enter_context(alone(1, tmp_path, Lab, Other))
        sids = [minted([one], 0) for one in (old, new)]
        router = stack.enter_context(routing([old.raw.url, new.raw.url]))
        assert _slots(router) == {1}  # as many serve this as that: the newer one is meant
        assert router.get("/list_environments").json() == ["lab", "other"]
        third = stack.enter_context(alone(2, tmp_path, Lab))
        most = stack.enter_context(routing([one.raw.url for one in (old, new, third)]))
        assert _slots(most) == {0, 2}
        assert most.get("/list_environments").json() == ["lab"]
        for one in (router, most):
            for sid in sids:
                assert one.call(sid, "nothing").result()["ok"] is True


def _later_than(one: ServerThread) -> None:
    """Waits until a server that starts now has a later life."""
    while new_incarnation() <= one.server.app.sessions.identity.incarnation:
        pass


def _slots(router: Raw) -> set[int]:
    return {int(router.post("/create_session").json()["sid"][:4], 16) for _ in range(30)}


def test_a_link_that_breaks_is_made_again_and_no_session_is_called_lost(tmp_path: Path) -> None:
    with linked_servers(1, tmp_path, [Lab]) as (one,), routing([one.raw.url]) as router:
        sid = router.session()
        for _ in range(40):
            cut = threading.Event()
            one.server.loop.call_soon_threadsafe(_cut_links, one, cut)
            assert cut.wait(20)
            assert router.post("/ping", sid=sid).status == 200


def _cut_links(one: ServerThread, cut: threading.Event) -> None:
    for each in list(one.server.clients.open):
        if isinstance(each, LinkServer):
            each.out.cut()
    cut.set()


def test_an_id_of_a_server_that_is_not_coming_back_may_be_used_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peers, "SUCCESSOR_SECONDS", 1000.0)
    with linked_servers(3, tmp_path, [Lab], limits=Limits(grace_seconds=0.1)) as made:
        was, unused = minted(made, 2), made[2].server.app.sessions.identity.new_session_id()
        made[2].cut()
        for one in made[:2]:
            while one.raw.post("/ping", sid=was).status != 410:
                pass
            soon = one.raw.post("/create", {"task_spec": {}}, sid=unused)
            assert (soon.status, soon.headers["retry-after"]) == (503, "1")
        monkeypatch.setattr(peers, "SUCCESSOR_SECONDS", -1.0)
        assert made[0].raw.post("/create", {"task_spec": {}}, sid=unused).status == 200
        for one in made[:2]:
            assert one.raw.call(unused, "nothing").result()["ok"] is True
            lost = one.raw.post("/ping", sid=was)
            assert (lost.status, lost.headers["ors-reason"]) == (410, "worker_lost")


def test_a_session_that_began_elsewhere_is_found_when_its_server_is_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peers, "SUCCESSOR_SECONDS", -1.0)
    with linked_servers(3, tmp_path, [Lab], limits=Limits(grace_seconds=0.1)) as made:
        was, sid = minted(made, 2), made[2].server.app.sessions.identity.new_session_id()
        made[2].cut()
        while made[0].raw.post("/ping", sid=was).status != 410:
            pass
        assert made[0].raw.post("/create", {"task_spec": {}}, sid=sid).status == 200
        (tmp_path / "next").mkdir()
        _later_than(made[2])
        with alone(2, tmp_path / "next", Lab) as back:
            addresses = [one.address for one in (*made[:2], back)]
            for one in (*made[:2], back):
                one.meet(addresses)
            for one in (*made[:2], back):
                assert one.raw.call(sid, "nothing").result()["ok"] is True
                assert one.raw.post("/create", {"task_spec": {}}, sid=sid).status == 400
                assert one.raw.post("/ping", sid=was).status == 410


def test_who_is_heard_of_is_not_dropped_because_somebody_has_not_heard_of_it(tmp_path: Path) -> None:
    id = uuid.uuid4().hex
    with linked_servers(2, tmp_path, [Lab]) as made:
        sid = minted(made, 1, task={"id": id})
        with made[0].raw.opened(sid, "hold_async") as call:
            loop = made[0].server.loop
            loop.call_soon_threadsafe(made[0].server.peers.update, [])
            assert made[0].raw.post("/ping", sid=sid).status == 200
            Lab.gates[f"{id}.hold"].set()
            assert call.rest().result()["ok"] is True


@pytest.mark.long
def test_pages_of_all_servers_leave_out_one_that_dies_meanwhile(tmp_path: Path) -> None:
    with crew(tmp_path, 2) as made, ThreadPoolExecutor(4) as pool:
        victim = made.pids()[1]
        with frozen([victim]):
            paths = ["/-/metrics", "/-/sessions", "/-/health/ready", "/-/metrics"]
            pages = [pool.submit(made.raw.get, path) for path in paths]
            os.kill(victim, signal.SIGKILL)
        for page in pages:
            with suppress(OSError):  # it was connected to the one that has died
                assert page.result(30).status == 200


@pytest.mark.long
def test_a_server_that_stands_still_is_not_called_lost_until_it_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peers, "SILENCE_SECONDS", 3.0)
    monkeypatch.setattr(router, "ARRIVAL_SECONDS", 0.2)
    variables = {"YARD": str(tmp_path / "traces")}
    with (
        running("serve", YARD, "--port", "0", "--grace-seconds", "0.1", env=variables) as server,
        routing([server.line(r"Serving on (http://\S+)")[1]]) as front,
    ):
        sid, own = front.session("yard"), str(front.post("/create_session").json()["sid"])
        assert front.post("/create", {"task_spec": {}}, sid=own).status == 200
        with (
            front.opened(sid, "stay", {"name": "x"}, env="yard") as call,
            frozen([server.process.pid]),
        ):
            assert call.rest().error().startswith("Session lost: ")
            for each in (sid, own):
                ping = front.post("/ping", sid=each)
                assert (ping.status, ping.headers["ors-reason"]) == (503, "unreachable")
                assert ping.headers["retry-after"] == "1"
            monkeypatch.setattr(peers, "GIVE_UP_SECONDS", 1.0)
            while front.post("/ping", sid=sid).status == 503:
                pass
            assert front.post("/ping", sid=sid).status == 410
        while front.post("/ping", sid=sid).status == 410:
            pass
        for each in (sid, own):
            assert front.post("/ping", sid=each).status == 200


@pytest.mark.long
def test_a_server_that_stands_still_holds_up_nobody_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peers, "QUIET_SECONDS", 2.5)
    go = threading.Event()
    with linked_servers(2, tmp_path, [Lab]) as made:
        raw = made[0].raw
        made[1].server.loop.call_soon_threadsafe(go.wait, 60)
        try:
            assert raw.get("/-/health/ready").status == 200
            assert raw.get("/-/sessions").json() == {"total": 0, "offset": 0, "sessions": []}
            assert b'server="0"' in raw.get("/-/metrics").body
            (other,) = made[0].server.peers
            while other.accepts_sessions:
                assert raw.get("/health").status == 200
            for n in range(10):  # some of them would have been the other's
                assert raw.post("/create", {"task_spec": {}}, sid=f"abc-{n}").status == 200
        finally:
            go.set()
