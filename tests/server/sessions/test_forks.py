"""Forks over the wire: turns, independence, limits, keys, and requests that are given up."""

import asyncio
import http.client
import json
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from ors import Limits, Server
from ors.server.observe.events import Event, SessionClosed, SessionOpened, SessionReady
from tests.requirements import proves
from tests.support.board_environment import AsyncForking, Board, Forking
from tests.support.live_server import hosted, serving
from tests.support.raw_http import Answer, Raw

ALL = (Board, Forking, AsyncForking)


@pytest.fixture(scope="module")
def raw() -> Iterator[Raw]:
    with serving(Server(ALL, limits=Limits(grace_seconds=0.1))) as url:
        yield Raw(url)


def opened(raw: Raw, env: str = "board", **task: Any) -> tuple[str, str]:
    """A new session, and the id of its task."""
    id = uuid.uuid4().hex
    return raw.session(env, {"id": id, **task}), id


def fork(raw: Raw, sid: str, n: Any = 1, key: str = "") -> Answer:
    return raw.post("/-/fork", {"n": n}, sid=sid, headers={"Idempotency-Key": key} if key else {})


def forked(raw: Raw, sid: str, n: int = 1, key: str = "") -> list[str]:
    answer = fork(raw, sid, n, key)
    assert answer.status == 200, answer
    (sids,) = answer.json().values()
    assert len(set(sids) - {sid}) == n
    return list(sids)


def told(raw: Raw, sid: str, tool: str, given: Any = None, env: str = "board") -> str:
    return str(raw.call(sid, tool, given, env=env).result()["output"]["blocks"][0]["text"])


def moved(raw: Raw, sid: str, name: str, env: str = "board") -> str:
    return told(raw, sid, "move", {"name": name}, env)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def total(raw: Raw) -> int:
    return int(raw.get("/-/sessions").json()["total"])


@proves("besides.fork")
def test_forks_go_on_from_where_the_session_stands_and_nobody_sees_the_others_moves(raw: Raw) -> None:
    first, id = opened(raw)
    assert moved(raw, first, "a") == "a"
    assert told(raw, first, "note", {"text": "x"}) == "x of a"
    one, two = forked(raw, first, 2)
    assert moved(raw, one, "b") == "a,b"
    assert moved(raw, first, "c") == "a,c"
    assert moved(raw, two, "d") == "a,d"
    assert told(raw, one, "note", {"text": "y"}) == "x,y of a,b"
    assert told(raw, two, "note", {"text": "z"}) == "x,z of a,d"
    (grandchild,) = forked(raw, one)
    assert moved(raw, grandchild, "e") == "a,b,e"
    assert raw.post("/delete", sid=first).status == 200
    assert moved(raw, two, "f") == "a,d,f"
    for sid in (one, two, grandchild):
        assert raw.post("/delete", sid=sid).status == 200
    assert Board.counts[f"{id}.teardown"] == 4


def test_counters_end_and_kept_results_are_the_forks_own(raw: Raw) -> None:
    first, _ = opened(raw)
    answer = raw.call(first, "move", {"name": "a"}, env="board")
    (sid,) = forked(raw, first)
    told(raw, sid, "finish")
    shown = {each["sid"]: each for each in raw.get("/-/sessions?limit=1000").json()["sessions"]}
    assert (shown[first]["calls"], shown[first]["reward"], shown[first]["finished"]) == (1, 1.0, False)
    assert (shown[sid]["calls"], shown[sid]["reward"], shown[sid]["finished"]) == (1, 0.0, True)
    known = {"name": "", "input": {}, "task_id": answer.events()[0][1]}
    assert raw.post("/board/call", known, sid=sid).error() == "unknown task_id"
    assert moved(raw, first, "b") == "a,b"


def test_forks_have_the_task_and_the_secrets_of_the_first(raw: Raw) -> None:
    sid = uuid.uuid4().hex
    body = {"env_name": "board", "split": "train", "index": 2, "secrets": {"key": "sk-1"}}
    assert raw.post("/create", body, sid=sid).status == 200
    (made,) = forked(raw, sid)
    assert raw.get("/board/prompt", sid=made).json()[0]["text"] == "task 2"
    assert raw.call(made, "secret", env="board").result()["output"]["metadata"] == {"key": "sk-1"}


@pytest.mark.parametrize(("env", "moves"), [("forking", "a,b"), ("asyncforking", "a,forked,b")])
def test_the_authors_fork_may_be_sync_or_async(raw: Raw, env: str, moves: str) -> None:
    first, id = opened(raw, env)
    moved(raw, first, "a", env)
    told(raw, first, "note", {"text": "x"}, env)
    sids = forked(raw, first, 3)
    assert Board.counts[f"{id}.fork"] == 3
    assert [moved(raw, sid, "b", env) for sid in sids] == [moves] * 3
    assert told(raw, sids[0], "note", {"text": "y"}, env) == f"x,y of {moves}"
    assert told(raw, first, "note", {"text": "z"}, env) == "x,z of a"


@proves("besides.fork")
def test_a_fork_waits_behind_the_running_call_and_before_the_next_one(raw: Raw) -> None:
    first, id = opened(raw)
    with raw.opened(first, "hold", env="board"), ThreadPoolExecutor(2) as pool:
        assert Board.gates[f"{id}.held"].wait(20)
        fork_asked = pool.submit(forked, raw, first, 2)
        until(lambda: running(raw, first) == 2)
        next_call = pool.submit(moved, raw, first, "next")
        until(lambda: running(raw, first) == 3)
        Board.gates[f"{id}.hold"].set()
        assert next_call.result(20) == "held,next"
        assert [moved(raw, sid, "x") for sid in fork_asked.result(20)] == ["held,x"] * 2


def running(raw: Raw, sid: str) -> int:
    sessions = raw.get("/-/sessions?limit=1000").json()["sessions"]
    return next(int(each["running"]) for each in sessions if each["sid"] == sid)


def test_a_fork_during_the_setup_waits_for_it(raw: Raw) -> None:
    first, id = opened(raw, setup_gate=True)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(forked, raw, first)
        until(lambda: running(raw, first) == 1)
        Board.gates[f"{id}.setup"].set()
        assert moved(raw, asked.result(20)[0], "a") == "a"


@proves("besides.fork-refused")
def test_a_session_that_cannot_go_on_is_not_forked(raw: Raw) -> None:
    finished, _ = opened(raw)
    told(raw, finished, "finish")
    answer = fork(raw, finished)
    assert (answer.status, answer.headers["ors-reason"]) == (400, "episode_finished")
    assert answer.detail == "The episode has finished: there is nothing to go on from"
    failed, _ = opened(raw, fail=True)
    assert (fork(raw, failed).status, fork(raw, failed).detail) == (
        500,
        "Environment setup failed: no setup today",
    )
    gone, _ = opened(raw)
    raw.post("/delete", sid=gone)
    assert fork(raw, gone).status == 410
    assert fork(raw, "never").status == 404


@proves("besides.fork-refused")
@pytest.mark.parametrize("n", [0, -1, 1025, 1.0, True, "2", None])
def test_a_number_that_is_none_is_named(raw: Raw, n: Any) -> None:
    sid, _ = opened(raw)
    answer = fork(raw, sid, n)
    assert answer.status == 400
    assert answer.detail.startswith("n: ")


def test_other_mistakes_are_told_as_elsewhere(raw: Raw) -> None:
    assert raw.post("/-/fork", {"n": 1}).detail == "The header X-Session-ID is required"
    sid, _ = opened(raw)
    assert "empty" in raw.post("/-/fork", sid=sid).detail
    assert (raw.get("/-/fork", sid=sid).status, raw.get("/-/fork").headers["allow"]) == (405, "POST")


@proves("besides.fork-refused")
def test_what_cannot_be_copied_is_named_and_leaves_nothing(raw: Raw) -> None:
    sid, _ = opened(raw, lock=True)
    before = total(raw)
    answer = fork(raw, sid, 2)
    assert (answer.status, answer.headers["ors-reason"]) == (500, "environment")
    assert answer.detail == (
        "Environment failed in fork: Board.lock cannot be copied (cannot pickle '_thread.lock' object):"
        " define fork() in the class"
    )
    assert total(raw) == before
    assert moved(raw, sid, "a") == "a"


@pytest.mark.parametrize(("returns", "text"), [("itself", "itself"), ("nothing", "NoneType")])
def test_a_fork_that_is_no_new_environment_is_told(raw: Raw, returns: str, text: str) -> None:
    sid, id = opened(raw, "forking", returns=returns)
    expected = f"Environment failed in fork: Forking.fork returned {text}; expected a new Forking"
    assert fork(raw, sid).detail == expected
    assert Board.counts[f"{id}.teardown"] == 0
    assert moved(raw, sid, "a", "forking") == "a"


def test_a_copy_that_fails_takes_the_others_with_it_and_hides_secrets(raw: Raw) -> None:
    sid, id = uuid.uuid4().hex, uuid.uuid4().hex
    body = {"env_name": "forking", "task_spec": {"id": id, "boom": 3}, "secrets": {"key": "sk-secret"}}
    assert raw.post("/create", body, sid=sid).status == 200
    before = total(raw)
    assert fork(raw, sid, 5).detail == "Environment failed in fork: no more copies, ***"
    assert total(raw) == before
    assert Board.counts[f"{id}.teardown"] == 2


def test_a_fork_over_the_time_limit_is_told_and_its_late_copy_is_torn_down() -> None:
    with serving(Server(ALL, limits=Limits(tool_seconds=0.05))) as url:
        raw = Raw(url)
        sid, id = opened(raw, "forking", gate=True)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(fork, raw, sid)
            assert Board.gates[f"{id}.forking"].wait(20)
            until(lambda: "ors_threads_lost 1" in raw.get("/-/metrics").body.decode())
            Board.gates[f"{id}.fork"].set()
            answer = asked.result(20)
        assert (answer.status, answer.headers["ors-reason"]) == (500, "tool_timeout")
        assert Board.counts[f"{id}.teardown"] == 1
        assert total(raw) == 1


# ── Keys ─────────────────────────────────────────────────────────────────────────────────────────


@proves("besides.fork-once")
def test_a_fork_with_the_same_key_is_the_same_fork(raw: Raw) -> None:
    first, _ = opened(raw)
    other, _ = opened(raw)
    sids = forked(raw, first, 2, key="k")
    assert fork(raw, first, 5, key="k").json() == {"sids": sids}
    assert set(forked(raw, first, 2, key="l")).isdisjoint(sids)
    assert set(forked(raw, other, 2, key="k")).isdisjoint(sids)


@proves("besides.fork-once")
def test_a_fork_with_the_same_key_joins_the_running_one_also_when_the_first_client_leaves() -> None:
    server = Server(ALL)
    with serving(server) as url, ThreadPoolExecutor(1) as pool:
        raw = Raw(url)
        first, id = opened(raw, "forking", gate=True)
        connection = asking(raw, first, 2, key="k")
        assert Board.gates[f"{id}.forking"].wait(20)
        (session,) = server._app.sessions
        assert session.forks is not None
        waited_for = session.forks.by_key("k")
        assert waited_for is not None
        joined = pool.submit(forked, raw, first, 2, "k")
        until(lambda: waited_for._waiting == 2)
        connection.close()
        until(lambda: waited_for._waiting == 1)
        Board.gates[f"{id}.fork"].set()
        sids = joined.result(20)
        assert fork(raw, first, 2, key="k").json() == {"sids": sids}
        assert (total(raw), Board.counts[f"{id}.fork"]) == (3, 2)


def test_a_fork_that_failed_may_be_tried_again_with_its_key(raw: Raw) -> None:
    sid, id = opened(raw, "forking", boom=1)
    assert fork(raw, sid, 1, key="k").status == 500
    assert len(forked(raw, sid, 1, key="k")) == 1
    assert Board.counts[f"{id}.fork"] == 2


def asking(raw: Raw, sid: str, n: int, key: str = "") -> http.client.HTTPConnection:
    """The connection of a fork that waits for its answer."""
    connection = raw.connection()
    headers = {"X-Session-ID": sid, **({"Idempotency-Key": key} if key else {})}
    connection.request("POST", "/-/fork", json.dumps({"n": n}), headers)
    return connection


# ── Interrupted ──────────────────────────────────────────────────────────────────────────────────


@proves("besides.fork-once")
@pytest.mark.parametrize("serve", [serving, hosted])
def test_a_client_that_leaves_in_the_middle_leaves_no_session(serve: Any) -> None:
    with serve(Server(ALL)) as url:
        raw = Raw(url)
        sid, id = opened(raw, "asyncforking", stay=3)
        connection = asking(raw, sid, 5, key="k")
        until(lambda: Board.counts[f"{id}.fork"] == 3)
        connection.close()
        until(lambda: Board.counts[f"{id}.teardown"] == 2)
        until(lambda: running(raw, sid) == 0)
        assert total(raw) == 1
        assert moved(raw, sid, "a", "asyncforking") == "a"
        assert len(forked(raw, sid, 2, key="k")) == 2


def test_a_copy_that_is_made_in_a_thread_when_the_client_leaves_is_torn_down() -> None:
    with serving(Server(ALL, limits=Limits(sessions=3))) as url:
        raw = Raw(url)
        sid, id = opened(raw, "forking", gate=True)
        with closing(asking(raw, sid, 2)):
            assert Board.gates[f"{id}.forking"].wait(20)
            assert raw.post("/create", {"task_spec": {}}, sid="x").status == 429
        until(lambda: "ors_threads_lost 1" in raw.get("/-/metrics").body.decode())
        Board.gates[f"{id}.fork"].set()
        until(lambda: Board.counts[f"{id}.teardown"] == 1)
        until(lambda: running(raw, sid) == 0)
        assert (total(raw), Board.counts[f"{id}.fork"]) == (1, 1)
        assert len(forked(raw, sid, 2)) == 2


def test_a_fork_whose_session_is_deleted_is_gone_and_leaves_nothing(raw: Raw) -> None:
    sid, id = opened(raw, "asyncforking", stay=2)
    before = total(raw)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(fork, raw, sid, 3)
        until(lambda: Board.counts[f"{id}.fork"] == 2)
        assert raw.post("/delete", sid=sid).status == 200
        answer = asked.result(20)
    assert (answer.status, answer.headers["ors-reason"]) == (410, "deleted")
    assert Board.counts[f"{id}.teardown"] == 2  # one copy, and the session itself
    assert total(raw) == before - 1


def test_a_server_that_drains_refuses_the_forks_that_wait_at_once() -> None:
    server = Server(ALL, limits=Limits(grace_seconds=20))
    with ThreadPoolExecutor(1) as pool, serving(server) as url:
        raw = Raw(url)
        sid, id = opened(raw)
        with raw.opened(sid, "hold", env="board"):
            asked = pool.submit(fork, raw, sid, 2)
            until(lambda: running(raw, sid) == 2)
            loop = server._app.runtime.loop
            assert loop is not None
            draining = asyncio.run_coroutine_threadsafe(server._app.drain(), loop)
            answer = asked.result(20)  # while the call still runs
            assert (answer.status, answer.headers["ors-reason"]) == (503, "shutdown")
            assert fork(raw, sid).status == 503
            Board.gates[f"{id}.hold"].set()
        draining.result(20)


def test_a_server_that_ends_tears_down_what_a_fork_has_made() -> None:
    with serving(Server(ALL, limits=Limits(grace_seconds=0.1))) as url:
        raw = Raw(url)
        sid, id = opened(raw, "asyncforking", stay=3)
        connection = asking(raw, sid, 5)
        until(lambda: Board.counts[f"{id}.fork"] == 3)
    assert Board.counts[f"{id}.teardown"] == 3
    connection.close()


# ── Limits ───────────────────────────────────────────────────────────────────────────────────────


@proves("besides.fork-refused")
def test_all_places_are_taken_at_once_or_none() -> None:
    with serving(Server(ALL, limits=Limits(sessions=5))) as url:
        raw = Raw(url)
        first, second = opened(raw)[0], opened(raw)[0]
        refused = fork(raw, first, 4)
        assert (refused.status, refused.headers["retry-after"], refused.headers["ors-reason"]) == (
            429,
            "1",
            "limit",
        )
        impossible = fork(raw, first, 5)
        assert impossible.status == 400
        assert impossible.detail == "n: with the forked one, there may be 5 sessions at once"
        made = forked(raw, first, 3)
        assert (total(raw), fork(raw, first).status) == (5, 429)
        raw.post("/delete", sid=second)
        raw.post("/delete", sid=made[0])
        forked(raw, first, 2)


def test_with_a_queue_a_fork_waits_for_its_places() -> None:
    server = Server(ALL, limits=Limits(sessions=4, queue=2))
    with serving(server) as url, ThreadPoolExecutor(1) as pool:
        raw = Raw(url)
        first, second, third = (opened(raw)[0] for _ in range(3))
        admission = server._app.sessions.admission
        left = asking(raw, first, 2)
        until(lambda: admission.waiting == 1)
        left.close()
        until(lambda: admission.waiting == 0)
        asked = pool.submit(forked, raw, first, 3)
        until(lambda: admission.waiting == 1)
        raw.post("/delete", sid=second)
        assert not asked.done()
        raw.post("/delete", sid=third)
        asked.result(20)
        assert total(raw) == 4


def test_forks_belong_to_the_key_of_the_first_and_count_for_it() -> None:
    keys = ["a=secret-a sessions=2", "b=secret-b"]
    with serving(Server(ALL, api_keys=keys)) as url:
        raw = Raw(url)
        a, b = {"X-API-Key": "secret-a"}, {"X-API-Key": "secret-b"}
        assert raw.post("/create", {"task_spec": {}}, sid="s", headers=a).status == 200
        assert raw.post("/-/fork", {"n": 1}, sid="s").status == 401
        assert raw.post("/-/fork", {"n": 1}, sid="s", headers=b).status == 404
        (sid,) = raw.post("/-/fork", {"n": 1}, sid="s", headers=a).json()["sids"]
        assert raw.post("/ping", sid=sid, headers=b).status == 404
        assert raw.post("/ping", sid=sid, headers=a).status == 200
        assert raw.post("/create", {"task_spec": {}}, sid="t", headers=a).status == 429
        assert raw.post("/create", {"task_spec": {}}, sid="t", headers=b).status == 200


def test_as_many_forks_wait_for_their_turn_as_calls_may() -> None:
    with serving(Server(ALL, limits=Limits(queued_calls=1))) as url, ThreadPoolExecutor(1) as pool:
        raw = Raw(url)
        sid, id = opened(raw)
        with raw.opened(sid, "hold", env="board"):
            assert Board.gates[f"{id}.held"].wait(20)
            asked = pool.submit(forked, raw, sid)
            until(lambda: running(raw, sid) == 2)
            assert fork(raw, sid).status == 429
            Board.gates[f"{id}.hold"].set()
            asked.result(20)


# ── Observers ────────────────────────────────────────────────────────────────────────────────────


class Seen:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, event: Event) -> None:
        self.events.append(event)


def test_observers_are_told_of_forks_as_of_any_session() -> None:
    seen = Seen()
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with serving(Server([Board], observers=[seen])) as url:
        raw = Raw(url)
        first, _ = opened(raw)
        answer = raw.post("/-/fork", {"n": 2}, sid=first, headers={"traceparent": trace})
        sids = answer.json()["sids"]
        assert "ors_sessions_created_total" in raw.get("/-/metrics").body.decode()
        metrics = raw.get("/-/metrics").body.decode()
        assert 'ors_sessions_created_total{environment="board"} 3' in metrics
        assert 'ors_sessions{environment="board",state="ready"} 3' in metrics
    assert [e.trace for e in seen.events if isinstance(e, SessionOpened) and e.sid in sids] == [trace] * 2
    for kind in (SessionOpened, SessionReady, SessionClosed):
        assert {e.sid for e in seen.events if isinstance(e, kind)} == {first, *sids}
