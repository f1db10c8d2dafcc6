"""Who may have a session: the limits on their number."""

import math
import uuid
from typing import ClassVar

import pytest

from ors import Limits, Server
from ors.errors import Unavailable
from ors.server.observe.events import Event, ThreadLost
from ors.server.sessions.admission import Admission, ApiKey, Keys
from tests.support.environments import Lab, Other
from tests.support.live_server import serving
from tests.support.raw_http import Raw


def create(raw: Raw, env: str = "lab", key: str = "", sid: str = "") -> tuple[int, str]:
    sid = sid or uuid.uuid4().hex
    headers = {"X-API-Key": key} if key else {}
    answer = raw.post("/create", {"env_name": env, "task_spec": {}}, sid=sid, headers=headers)
    if answer.status == 429:
        assert (answer.headers["retry-after"], answer.headers["ors-reason"]) == ("1", "limit")
        assert answer.detail == "The server is at its session limit. Try again later."
    return answer.status, sid


def test_at_the_limit_of_sessions_a_creation_is_429_and_leaves_nothing() -> None:
    with serving(Server([Lab], limits=Limits(sessions=2))) as url:
        raw = Raw(url)
        first, second = create(raw), create(raw)
        status, sid = create(raw)
        assert (first[0], second[0], status) == (200, 200, 429)
        assert raw.post("/ping", sid=sid).status == 404
        assert raw.get("/-/health/ready").status == 503
        assert raw.post("/delete", sid=first[1]).status == 200
        assert raw.get("/-/health/ready").status == 200
        assert create(raw, sid=sid)[0] == 200


def test_environments_and_keys_have_limits_of_their_own() -> None:
    limits = Limits(sessions_per_environment=2, sessions_per_key=1)
    keys: list[ApiKey | str] = ["a=secret-a", ApiKey("b", "secret-b", sessions=3)]
    with serving(Server([Lab, Other], limits=limits, api_keys=keys)) as url:
        raw = Raw(url)
        assert create(raw, key="secret-a")[0] == 200
        assert create(raw, "other", key="secret-a")[0] == 429
        assert create(raw, key="secret-b")[0] == 200
        assert create(raw, key="secret-b")[0] == 429
        assert create(raw, "other", key="secret-b")[0] == 200


def test_failed_creations_give_their_place_back() -> None:
    with serving(Server([Lab], limits=Limits(sessions=1))) as url:
        raw = Raw(url)
        for _ in range(3):
            assert raw.post("/create", {"split": "train", "index": 99}, sid="x").status == 400
            assert raw.post("/create", {"split": "nope", "index": 0}, sid="x").status == 400
        assert create(raw, sid="taken")[0] == 200
        assert create(raw)[0] == 429
        assert create(raw, sid="taken")[0] == 400  # a client that has lost the answer learns that it exists
        assert raw.post("/delete", sid="taken").status == 200
        assert create(raw)[0] == 200


def test_calls_at_once_and_in_line_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ors.server.sessions.session.QUEUED_CALLS", 1)
    id = uuid.uuid4().hex
    with serving(Server([Lab], limits=Limits(calls=3, grace_seconds=0.1))) as url:
        raw = Raw(url)
        sid = raw.session(task={"id": id})
        with raw.opened(sid, "hold"), raw.opened(sid, "nothing"):
            in_line = raw.call(sid, "nothing")
            assert (in_line.status, in_line.headers["ors-reason"]) == (429, "limit")
            assert "This session" in in_line.detail
            other = raw.session()
            with raw.opened(other, "stay"):
                assert "concurrent calls" in raw.call(raw.session(), "nothing").detail
                Lab.gates[f"{id}.hold"].set()


def test_a_session_ends_when_its_life_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ors.server.app.REAP_SECONDS", 0.01)
    id = uuid.uuid4().hex
    with serving(Server([Lab], limits=Limits(life_seconds=0.2))) as url:
        raw = Raw(url)
        sid = raw.session(task={"id": id})
        with raw.opened(sid, "stay") as call:
            assert call.rest().error() == "Session expired: its lifetime is 0.2 s"
        gone = raw.post("/ping", sid=sid)
        assert (gone.status, gone.headers["ors-reason"]) == (410, "life")


def test_an_environment_has_limits_of_its_own() -> None:
    class Tight(Lab):
        limits = {"result_bytes": 500}

    class Hasty(Lab):
        limits = {"tool_seconds": 0.05}

    class Eager(Lab):
        limits = {"setup_seconds": 0.1}

    with serving(Server([Tight, Hasty, Eager, Lab])) as url:
        raw = Raw(url)
        assert "time limit of 0.05 s" in raw.call(raw.session("hasty"), "stay", env="hasty").error()
        assert (
            "output limit" in raw.call(raw.session("tight"), "echo", {"text": "x" * 600}, env="tight").error()
        )
        assert raw.call(raw.session(), "echo", {"text": "x" * 600}).result()["ok"] is True
        slow = raw.session("eager", {"setup_gate": True, "id": "tight-setup"})
        failed = raw.get("/eager/prompt", sid=slow)
        assert "setup did not end within 0.1 s" in failed.detail
        assert failed.headers["ors-reason"] == "setup_timeout"
        assert Lab.counts["tight-setup.teardown"] == 0  # which waits for the thread of the setup
        Lab.gates["tight-setup.setup"].set()


def test_an_environment_has_a_limit_of_its_own_to_sessions() -> None:
    class Small(Lab):
        limits = {"sessions_per_environment": 1}

    with serving(Server([Small, Lab], limits=Limits(sessions_per_environment=2, grace_seconds=0.1))) as url:
        raw = Raw(url)
        assert [create(raw)[0] for _ in range(3)] == [200, 200, 429]
        assert [create(raw, "small")[0] for _ in range(2)] == [200, 429]


def test_more_tasks_than_a_reply_may_have_are_400(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ors.server.episodes.environments.REPLY_TASKS", 3)
    with serving(Server([Lab])) as url:
        raw = Raw(url)
        assert "too many" in raw.post("/lab/tasks", {"split": "train"}).detail
        assert raw.post("/lab/task_range", {"split": "train"}).status == 400
        assert len(raw.post("/lab/task_range", {"split": "train", "stop": 3}).json()["tasks"]) == 3


def test_lost_threads_are_counted() -> None:
    id = uuid.uuid4().hex
    with serving(Server([Lab], limits=Limits(tool_seconds=0.05))) as url:
        raw = Raw(url)
        raw.call(raw.session(task={"id": id}), "hold").error()
        assert "ors_threads_lost 1.0" in raw.get("/-/metrics").body.decode()
        Lab.gates[f"{id}.hold"].set()
        while "ors_threads_lost 0.0" not in raw.get("/-/metrics").body.decode():
            pass


def test_observers_are_told_which_tool_has_lost_its_thread() -> None:
    class Listener:
        told: ClassVar[list[Event]] = []

        def observe(self, event: Event) -> None:
            self.told.append(event)

    ids = [uuid.uuid4().hex for _ in range(2)]
    with serving(Server([Lab], limits=Limits(tool_seconds=0.05), observers=[Listener()])) as url:
        raw = Raw(url)
        sids = [raw.session(task={"id": id}) for id in ids]
        for sid in sids:
            raw.call(sid, "hold").error()
        raw.call(raw.session(), "stay").error()  # too long as well, but without a thread
        assert [event for event in Listener.told if isinstance(event, ThreadLost)] == [
            ThreadLost(sid, "lab", "hold", lost) for lost, sid in enumerate(sids, 1)
        ]
        for id in ids:
            Lab.gates[f"{id}.hold"].set()


def test_the_sessions_that_a_key_still_has_count_when_others_have_ended() -> None:
    admission = Admission(Limits(sessions_per_key=2), Keys())
    admission.enter("env", "key", 2)
    admission.leave("env", "key")
    admission.enter("env", "key")
    with pytest.raises(Unavailable):
        admission.enter("env", "key")
    admission.enter("env", "other")


def test_the_most_sessions_at_once_are_those_that_every_limit_allows() -> None:
    admission = Admission(Limits(sessions=9, sessions_per_key=8), Keys([ApiKey("few", "secret", sessions=3)]))
    admission.per_environment = {"small": 5}
    pairs = [("env", "key"), ("small", "key"), ("env", "few"), ("small", "few")]
    assert [admission.most(*pair) for pair in pairs] == [8, 5, 3, 3]
    assert Admission(Limits(sessions=None), Keys()).most("env", "key") == math.inf
