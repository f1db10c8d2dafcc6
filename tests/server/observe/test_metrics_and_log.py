"""Metrics, the list of sessions, and the log."""

import logging
import re
import time
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ors import Limits, Server, ToolOutput, tool
from tests.support.environments import Lab, said
from tests.support.live_server import app_of, serving
from tests.support.raw_http import Raw


def samples(raw: Raw) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels, in their order, as a real parser reads them."""
    answer = raw.get("/-/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def test_no_session_is_told_as_zero() -> None:
    with serving(Server([Lab])) as url:
        assert samples(Raw(url))["ors_sessions", "lab", "ready"] == 0


def test_metrics_count_what_happened() -> None:
    with serving(Server([Lab], limits=Limits(sessions=3))) as url:
        raw = Raw(url)
        sid = raw.session()
        answer = raw.call(sid, "echo", {"text": "x"})
        raw.call(sid, "echo", {"text": "x"}, task_id=answer.events()[0][1])
        raw.call(sid, "echo", {})
        raw.call(sid, "boom", {"text": "x"})
        raw.call(sid, "an-invention", {})
        raw.get("/lab/prompt", sid=raw.session(task={"fail": "setup"}))
        deleted = raw.session()
        raw.get("/lab/prompt", sid=deleted)
        raw.post("/delete", sid=deleted)
        raw.get("/lab/prompt", sid=raw.session())
        raw.post("/create", {"task_spec": {}}, sid="too-many")
        found = samples(raw)
    assert found["ors_sessions", "lab", "ready"] == 2
    assert found["ors_sessions", "lab", "failed"] == 1
    assert found["ors_sessions_created_total", "lab"] == 4
    assert found["ors_sessions_closed_total", "lab", "deleted"] == 1
    assert found["ors_setups_failed_total", "lab", "environment"] == 1
    assert found["ors_calls_total", "lab", "ok", "", "echo"] == 1
    assert found["ors_calls_total", "lab", "refused", "input_validation", "echo"] == 1
    assert found["ors_calls_total", "lab", "failed", "environment", "boom"] == 1
    assert found["ors_calls_total", "lab", "refused", "not_found", ""] == 1
    assert found["ors_call_seconds_count", "lab", "echo"] == 2
    assert found["ors_setup_seconds_count", "lab"] == 4
    assert found["ors_teardown_seconds_count", "lab"] == 1
    assert found["ors_calls_replayed_total", "lab"] == 1
    assert found["ors_requests_rejected_total", "limit"] == 1
    assert found["ors_results_kept",] == 4
    assert found["ors_result_bytes_total", "lab"] > 100
    assert found["ors_calls_running",] == found["ors_threads_lost",] == 0
    assert found["process_resident_memory_bytes",] > 10**7
    assert ("ors_event_loop_lag_seconds",) in found


def test_what_an_agent_invents_is_no_label() -> None:
    with serving(Server([Lab])) as url:
        raw = Raw(url)
        over, failed = raw.session(), raw.session(task={"fail": "setup"})
        raw.call(over, "reward", {"value": 1, "finished": True})
        for n in range(5):
            assert raw.call(over, f"invention-{n}\ud800").result()["reason"] == "episode_finished"
            assert "no setup today" in raw.call(failed, f"invention-{n}").error()
        raw.call(raw.session(), "hint")
        found = samples(raw)
    tools = {key[-1] for key in found if key[0] == "ors_calls_total"}
    assert tools == {"", "reward", "hint"}
    assert found["ors_calls_total", "lab", "refused", "episode_finished", ""] == 5
    assert found["ors_calls_total", "lab", "failed", "environment", ""] == 5


def test_a_long_name_is_cut_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ors.server")
    with serving(Server([Lab])) as url:
        raw = Raw(url)
        raw.call(raw.session(), "x" * 100_000)
    (refused,) = [record for record in caplog.records if vars(record).get("event") == "CallFinished"]
    assert len(refused.getMessage()) < 300
    assert len(vars(refused)["tool"]) < 200


def test_sessions_are_listed_in_pages_filtered_and_ended() -> None:
    with serving(Server([Lab])) as url:
        raw = Raw(url)
        sids = [raw.session() for _ in range(5)]
        raw.call(sids[0], "reward", {"value": 0.5, "finished": True})
        failed = raw.session(task={"fail": "setup"})
        raw.get("/lab/prompt", sid=failed)
        first = raw.get("/-/sessions?state=ready&limit=2").json()
        assert (first["total"], len(first["sessions"])) == (5, 2)
        told = first["sessions"][0]
        assert (told["sid"], told["calls"], told["reward"], told["finished"]) == (sids[0], 1, 0.5, True)
        rest = raw.get("/-/sessions?state=ready&offset=2").json()["sessions"]
        assert [session["sid"] for session in rest] == sids[2:]
        assert raw.get("/-/sessions?state=failed").json()["sessions"][0]["sid"] == failed
        assert raw.get("/-/sessions?environment=other").json()["total"] == 0
        assert raw("DELETE", f"/-/sessions/{sids[0]}").json() == {"sid": sids[0]}
        assert raw.post("/ping", sid=sids[0]).status == 410
        assert raw("DELETE", "/-/sessions/unknown").status == 404
        assert raw.get("/-/sessions?limit=x").status == 400
        assert raw.post("/-/sessions").status == 405


def test_ready_is_not_ready_while_draining() -> None:
    server = Server([Lab])
    with serving(server) as url:
        raw = Raw(url)
        assert raw.get("/-/health/ready").json() == {"status": "ready"}
        app_of(server).shared.draining = True
        assert raw.get("/-/health/ready").status == 503
        assert raw.get("/-/health/live").status == 200


def test_the_log_has_the_values_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "ors.server")
    with serving(Server([Lab])) as url:
        raw = Raw(url)
        sid = raw.session()
        raw.call(sid, "echo", {"text": "x"})
        raw.call(sid, "boom", {"text": "x"})
        raw.post("/delete", sid=sid)
    # A server of an earlier test may still be closing its sessions.
    fields: list[dict[str, Any]] = [vars(each) for each in caplog.records if vars(each).get("session") == sid]
    assert [(one["event"], one["levelname"]) for one in fields] == [
        ("SessionOpened", "DEBUG"),
        ("SessionReady", "DEBUG"),
        ("CallFinished", "DEBUG"),
        ("CallFinished", "INFO"),
        ("SessionClosed", "INFO"),
    ]
    assert (fields[3]["tool"], fields[3]["outcome"], fields[3]["reason"]) == ("boom", "failed", "environment")
    assert fields[2]["seconds"] > 0


def test_the_log_has_one_line_an_episode(caplog: pytest.LogCaptureFixture) -> None:
    class Private(Lab):
        private_fields = ("answer",)

    caplog.set_level(logging.INFO, "ors.server")
    with serving(Server([Lab, Private])) as url:
        raw = Raw(url)
        sids = [raw.session(), raw.session("private", {"n": 1, "answer": "41"}), "by-index"]
        assert raw.post("/create", {"split": "train", "index": 1}, sid=sids[2]).status == 200
        raw.call(sids[0], "reward", {"value": 0.5, "finished": True})
        sids.append(raw.session(task={"fail": "setup"}))
        for sid in sids:
            raw.get("/lab/prompt", sid=sid)
            raw.post("/delete", sid=sid)
    told = [record for record in caplog.records if record.getMessage().startswith("episode ")]
    seconds = re.compile(r"\d+\.\d s")
    assert [seconds.sub("0 s", record.getMessage()) for record in told] == [
        f"episode {sids[0]} of lab ({{}}): scored, reward 0.5, 1 call, 0 s, deleted",
        f"episode {sids[1]} of private ({{'n': 1}}): unscored, 0 calls, 0 s, deleted",
        f"episode {sids[2]} of lab (train 1): unscored, 0 calls, 0 s, deleted",
        f"episode {sids[3]} of lab ({{'fail': 'setup'}}): failed, 0 calls, 0 s, deleted",
    ]
    assert vars(told[0])["outcome"] == "scored"
    assert len([record for record in caplog.records if "event" in vars(record)]) == 5  # and the failed setup


@pytest.mark.parametrize(
    ("tool", "given", "reason"),
    [("boom", {"text": "x"}, "environment"), ("stay", {}, "tool_timeout"), ("cancel", {}, "cancelled"),
     ("echo", {"text": "x" * 2000}, "limit")],
)  # fmt: skip
def test_an_error_says_who_failed(tool: str, given: dict[str, str], reason: str) -> None:
    with serving(Server([Lab], limits=Limits(tool_seconds=0.05, result_bytes=1000))) as url:
        raw = Raw(url)
        body = raw.call(raw.session(), tool, given).body.decode()
    assert f"event: error\nreason: {reason}\ndata: " in body


def test_a_blocked_event_loop_is_seen_though_it_runs_again() -> None:
    class Blocking(Lab):
        @tool
        async def block(self) -> ToolOutput:
            """Holds everyone up."""
            time.sleep(0.7)
            return said("done")

    with serving(Server([Blocking])) as url:
        raw = Raw(url)
        assert raw.call(raw.session("blocking"), "block", env="blocking").result()["ok"]
        while samples(raw)["ors_event_loop_lag_seconds",] < 0.3:
            pass
