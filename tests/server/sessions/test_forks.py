"""Forks over the wire: turns, independence, refusals, limits, observers."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ors import Limits, Server
from ors.server.observe.events import Event, SessionClosed, SessionOpened, SessionReady
from tests.requirements import proves
from tests.support.board_environment import AsyncForking, Board, Forking
from tests.support.forks import fork, forked, moved, opened, running, told, total
from tests.support.live_server import serving
from tests.support.raw_http import Raw
from tests.support.waiting import wait_until

ALL = (Board, Forking, AsyncForking)


@pytest.fixture(scope="module")
def raw() -> Iterator[Raw]:
    with serving(Server(ALL, limits=Limits(grace_seconds=0.1))) as url:
        yield Raw(url)


@proves("fork.copies")
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


@proves("fork.copies")
def test_a_fork_waits_behind_the_running_call_and_before_the_next_one(raw: Raw) -> None:
    first, id = opened(raw)
    with raw.opened(first, "hold", env="board"), ThreadPoolExecutor(2) as pool:
        assert Board.gates[f"{id}.held"].wait(20)
        fork_asked = pool.submit(forked, raw, first, 2)
        wait_until(lambda: running(raw, first) == 2)
        next_call = pool.submit(moved, raw, first, "next")
        wait_until(lambda: running(raw, first) == 3)
        Board.gates[f"{id}.hold"].set()
        assert next_call.result(20) == "held,next"
        assert [moved(raw, sid, "x") for sid in fork_asked.result(20)] == ["held,x"] * 2


def test_a_fork_during_the_setup_waits_for_it(raw: Raw) -> None:
    first, id = opened(raw, setup_gate=True)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(forked, raw, first)
        wait_until(lambda: running(raw, first) == 1)
        Board.gates[f"{id}.setup"].set()
        assert moved(raw, asked.result(20)[0], "a") == "a"


@proves("fork.refused")
def test_a_session_that_cannot_go_on_is_not_forked(raw: Raw) -> None:
    finished, _ = opened(raw)
    told(raw, finished, "finish")
    answer = fork(raw, finished)
    assert (answer.status, answer.headers["ors-reason"]) == (400, "episode_finished")
    assert answer.detail == "The episode has finished: there is nothing to fork"
    failed, _ = opened(raw, fail=True)
    assert (fork(raw, failed).status, fork(raw, failed).detail) == (
        500,
        "Environment setup failed: no setup today",
    )
    gone, _ = opened(raw)
    raw.post("/delete", sid=gone)
    assert fork(raw, gone).status == 410
    assert fork(raw, "never").status == 404


@proves("fork.refused")
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


@proves("fork.refused")
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
            wait_until(lambda: "ors_threads_lost 1" in raw.get("/-/metrics").body.decode())
            Board.gates[f"{id}.fork"].set()
            answer = asked.result(20)
        assert (answer.status, answer.headers["ors-reason"]) == (500, "tool_timeout")
        assert Board.counts[f"{id}.teardown"] == 1
        assert total(raw) == 1


# ── Limits ───────────────────────────────────────────────────────────────────────────────────────


@proves("fork.refused")
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
        assert impossible.detail == "n: at most 5 sessions at once, counting the forked one"
        made = forked(raw, first, 3)
        assert (total(raw), fork(raw, first).status) == (5, 429)
        raw.post("/delete", sid=second)
        raw.post("/delete", sid=made[0])
        forked(raw, first, 2)


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


def test_as_many_forks_wait_for_their_turn_as_calls_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ors.server.sessions.session.QUEUED_CALLS", 1)
    with serving(Server(ALL)) as url, ThreadPoolExecutor(1) as pool:
        raw = Raw(url)
        sid, id = opened(raw)
        with raw.opened(sid, "hold", env="board"):
            assert Board.gates[f"{id}.held"].wait(20)
            asked = pool.submit(forked, raw, sid)
            wait_until(lambda: running(raw, sid) == 2)
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
