"""Sessions over HTTP: created, used, ended."""

import asyncio
import base64
import json
import logging
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ors import Limits, Server
from ors.types import Blocks, ListToolsOutput
from tests.requirements import proves
from tests.support.environments import Lab
from tests.support.live_server import app_of, serving
from tests.support.raw_http import Raw, events


def fresh() -> str:
    return uuid.uuid4().hex


def header(secrets: dict[str, str]) -> dict[str, str]:
    payload = {name: {"value": value} for name, value in secrets.items()}
    return {"X-Secrets": base64.b64encode(json.dumps(payload).encode()).decode()}


@proves("create-session.sid", "create-session.stream")
def test_create_session_gives_an_id_as_json_or_as_events(raw: Raw) -> None:
    plain = raw.post("/create_session")
    assert plain.headers["content-type"] == "application/json"
    assert str(uuid.UUID(plain.json()["sid"])) == plain.json()["sid"]
    for accept in ("text/event-stream", "application/json, TEXT/EVENT-STREAM;q=0.5"):
        stream = raw.post("/create_session", headers={"Accept": accept})
        (first, sid), (last, end) = events(stream.body)
        assert (first, last) == ("task_id", "end")
        assert json.loads(end) == {"sid": sid}
        assert stream.headers["content-type"].startswith("text/event-stream")


@proves("create.race")
def test_of_concurrent_creates_with_one_id_exactly_one_succeeds(raw: Raw) -> None:
    sid, body = fresh(), {"env_name": "lab", "split": "train", "index": 1}
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: raw.post("/create", body, sid=sid), range(16)))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 15
    assert {a.detail for a in answers if a.status == 400} == {"Session already exists"}
    assert raw.get("/lab/prompt", sid=sid).json()[0]["text"] == "task 1"


@proves("create.answers-first", "call.off-loop")
def test_authors_sync_code_runs_off_the_loop_and_setup_after_the_reply(raw: Raw) -> None:
    id = fresh()
    sid = raw.session(task={"id": id, "setup_gate": True})  # answers although setup waits for the gate
    assert raw.get("/health").status == 200
    Lab.gates[f"{id}.setup"].set()
    raw.get("/lab/prompt", sid=sid)
    raw.call(sid, "echo_sync", {"text": ""})
    raw.post("/delete", sid=sid)
    loops = {thread.ident for thread in threading.enumerate() if not thread.name.startswith("ors-tool-")}
    for what in ("init", "setup", "prompt", "echo_sync", "teardown"):
        assert Lab.threads[f"{id}.{what}"] not in loops, what


@proves("create.prompt-waits", "create.task-tools-waits")
def test_prompt_and_task_tools_wait_for_setup(raw: Raw) -> None:
    id = fresh()
    sid = raw.session(task={"id": id, "setup_gate": True})
    with ThreadPoolExecutor(2) as pool:
        prompt = pool.submit(raw.get, "/lab/prompt", sid=sid)
        tools = pool.submit(raw.get, "/lab/task_tools", sid=sid)
        assert raw.post("/ping", sid=sid).status == 200
        assert not prompt.done()
        assert not tools.done()
        Lab.gates[f"{id}.setup"].set()
        assert prompt.result().status == tools.result().status == 200


@proves("create.call-opens")
def test_a_call_opens_its_stream_while_setup_runs(raw: Raw) -> None:
    id = fresh()
    sid = raw.session(task={"id": id, "setup_gate": True})
    with raw.opened(sid, "echo", {"text": "hi"}) as call:
        assert call.response.getheader("content-length") is None
        Lab.gates[f"{id}.setup"].set()
        assert call.rest().result()["ok"] is True


@proves("setup-failed.reason", "setup-failed.call", "setup-failed.teardown")
@pytest.mark.parametrize(("where", "teardowns"), [("setup", 1), ("init", 0)])
def test_a_failed_setup_is_told_to_every_request(raw: Raw, where: str, teardowns: int) -> None:
    id = fresh()
    sid = raw.session(task={"id": id, "fail": where})
    reason = "no setup today" if where == "setup" else "no constructor today"
    for answer in (raw.get("/lab/prompt", sid=sid), raw.get("/lab/task_tools", sid=sid)):
        assert answer.status == 500
        assert reason in answer.detail
    assert reason in raw.call(sid, "echo", {"text": ""}).error()
    assert raw.post("/ping", sid=sid).status == 500
    assert raw.post("/create", {"env_name": "lab", "task_spec": {}}, sid=sid).status == 400
    assert raw.post("/delete", sid=sid).status == 200
    assert Lab.counts[f"{id}.teardown"] == teardowns
    assert raw.get("/lab/prompt", sid=sid).status == 410


@proves("secrets.body", "secrets.header")
def test_secrets_come_from_the_body_and_the_header_which_wins(raw: Raw) -> None:
    sid = fresh()
    body = {"env_name": "lab", "task_spec": {}, "secrets": {"key": "body", "other": "kept-here"}}
    assert raw.post("/create", body, sid=sid, headers=header({"key": "header"})).status == 200
    output = raw.call(sid, "show_secrets").result()["output"]
    assert output["metadata"] == {"key": "header", "other": "kept-here"}
    assert output["blocks"][0]["text"] == "Secrets(key=***, other=***)"


@proves("secrets.bad-header")
@pytest.mark.parametrize(
    "value",
    ["%%%", "aGk=", base64.b64encode(b"[]").decode(), base64.b64encode(b'{"key": "hunter2"}').decode()],
)
def test_a_secrets_header_that_does_not_parse_is_400(raw: Raw, value: str) -> None:
    sid = fresh()
    answer = raw.post("/create", {"env_name": "lab", "task_spec": {}}, sid=sid, headers={"X-Secrets": value})
    assert answer.status == 400
    assert "X-Secrets" in answer.detail
    assert "hunter2" not in answer.detail
    assert raw.post("/ping", sid=sid).status == 404


@proves("secrets.hidden")
@pytest.mark.parametrize("how", ["exception", "stacktrace"])
def test_secrets_appear_in_no_error_and_no_log(how: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(Server([Lab], return_errors=how)) as url:  # type: ignore[arg-type]
        raw = Raw(url)
        sid = raw.session(headers=header({"key": "hunter2-hunter2"}))
        error = raw.call(sid, "secret").error()
        failed = raw.session(task={"fail": "setup"}, headers=header({"key": "hunter2-hunter2"}))
        detail = raw.get("/lab/prompt", sid=failed).detail
    assert "the key is ***" in error
    assert "no setup today, ***" in detail
    assert "no setup today, ***" in caplog.text
    assert "hunter2" not in error + detail + caplog.text


@proves("delete.running-call", "delete.teardown")
def test_delete_ends_running_calls_and_tears_down_once(raw: Raw) -> None:
    id = fresh()
    sid = raw.session(task={"id": id})
    assert raw.get("/lab/prompt", sid=sid).status == 200  # waits for the setup
    with raw.opened(sid, "stay") as running, raw.opened(sid, "echo", {"text": "never"}) as queued:
        assert raw.post("/delete", sid=sid).json() == {"sid": sid}
        assert "Session deleted" in running.rest().error()
        assert "Session deleted" in queued.rest().error()
    assert raw.post("/delete", sid=sid).status == 200
    assert Lab.counts[f"{id}.teardown"] == 1
    assert Lab.counts[f"{id}.echo"] == 0


@proves("delete.running-call")
def test_delete_ends_a_call_that_is_stuck_in_a_thread(raw: Raw) -> None:
    id = fresh()
    sid = raw.session(task={"id": id})
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(raw.call, sid, "hold")
        assert Lab.gates[f"{id}.held"].wait(20)
        assert raw.post("/delete", sid=sid).status == 200
        assert "Session deleted" in running.result().error()
    Lab.gates[f"{id}.hold"].set()
    assert Lab.counts[f"{id}.teardown"] == 1


@proves("delete.running-setup")
def test_delete_cancels_a_running_setup(raw: Raw) -> None:
    id = fresh()
    sid = raw.session(task={"id": id, "setup_gate": True})
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(raw.get, "/lab/prompt", sid=sid)
        deleting = pool.submit(raw.post, "/delete", sid=sid)
        assert waiting.result().status == 410
        assert not deleting.done()  # the teardown waits for the thread, which cannot be stopped
        Lab.gates[f"{id}.setup"].set()
        assert deleting.result().status == 200


@proves("delete.teardown-once")
def test_concurrent_deletes_tear_down_once(raw: Raw) -> None:
    id = fresh()
    sid = raw.session(task={"id": id})
    raw.get("/lab/prompt", sid=sid)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: raw.post("/delete", sid=sid), range(8)))
    assert {answer.status for answer in answers} == {200}
    assert Lab.counts[f"{id}.teardown"] == 1


@proves("delete.unknown")
def test_deleting_an_unknown_id_is_404(raw: Raw) -> None:
    assert raw.post("/delete", sid=fresh()).status == 404


@proves("delete.hanging-teardown")
def test_a_teardown_that_hangs_is_bounded_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    id = fresh()
    with serving(Server([Lab], limits=Limits(teardown_seconds=0.05))) as url:
        raw = Raw(url)
        sid = raw.session(task={"id": id, "hang": "teardown"})
        raw.get("/lab/prompt", sid=sid)
        assert raw.post("/delete", sid=sid).status == 200
        assert raw.get("/lab/prompt", sid=sid).status == 410
    assert "teardown did not end within 0.05 s" in caplog.text
    Lab.gates[f"{id}.teardown"].set()


@proves("delete-session.unknown", "delete-session.deletes-nothing")
def test_delete_session_deletes_nothing(raw: Raw) -> None:
    sid = raw.session()
    assert raw.post("/delete_session", sid=sid).json() == {"sid": sid}
    assert raw.post("/ping", sid=sid).status == 200
    assert raw.post("/delete_session", sid="never seen").json() == {"sid": "never seen"}
    for bad in ("s" * 257, "a\tb", "\x7f"):
        assert raw.post("/delete_session", sid=bad).status == 400


@proves("gone.prompt", "gone.call", "gone.create-again", "ping.gone")
def test_after_the_end_the_id_is_gone_until_it_is_created_again(raw: Raw) -> None:
    sid = raw.session()
    raw.post("/delete", sid=sid)
    assert raw.get("/lab/prompt", sid=sid).status == 410
    assert raw.get("/lab/task_tools", sid=sid).status == 410
    assert raw.post("/ping", sid=sid).status == 410
    assert raw.call(sid, "echo", {"text": ""}).status == 410
    assert raw.post("/create", {"env_name": "lab", "task_spec": {}}, sid=sid).status == 200
    assert raw.call(sid, "echo", {"text": ""}).result()["ok"] is True


@proves("ping.ok", "ping.unknown")
def test_ping_answers_200_for_an_episode_and_404_for_none(raw: Raw) -> None:
    assert raw.post("/ping", sid=raw.session()).json() == {"status": "ok"}
    made = raw.post("/create_session").json()["sid"]
    for sid in (fresh(), made):
        assert raw.post("/ping", sid=sid).status == 404
        assert raw.call(sid, "echo", {"text": ""}).status == 404
        assert raw.get("/lab/prompt", sid=sid).status == 404


def test_shutdown_ends_streams_with_an_error_and_tears_down() -> None:
    id = fresh()
    with ThreadPoolExecutor(2) as pool:
        with serving(Server([Lab], limits=Limits(grace_seconds=0.2))) as url:
            raw = Raw(url)
            sid = raw.session(task={"id": id})
            running = pool.submit(raw.call, sid, "stay")
            assert Lab.gates[f"{id}.held"].wait(20)
        assert "shutting down" in running.result().error()
    assert Lab.counts[f"{id}.teardown"] == 1


def test_shutdown_lets_running_calls_finish_and_takes_nothing_new() -> None:
    id = fresh()
    server = Server([Lab], limits=Limits(grace_seconds=20))
    with ThreadPoolExecutor(2) as pool:
        with serving(server) as url:
            raw = Raw(url)
            sid = raw.session(task={"id": id})
            running = pool.submit(raw.call, sid, "hold")
            assert Lab.gates[f"{id}.held"].wait(20)
            app_of(server).shared.draining = True
            refused = raw.post("/create", {"task_spec": {}}, sid=fresh())
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            assert raw.call(sid, "echo", {"text": ""}).status == 503
            pool.submit(Lab.gates[f"{id}.hold"].set)
        assert running.result().result()["ok"] is True
    assert Lab.counts[f"{id}.teardown"] == 1


def test_a_large_task_survives_the_way_in_and_out(raw: Raw, tmp_path: Path) -> None:
    text = "ü" * 200_000
    sid = raw.session(task={"n": text})
    assert raw.get("/lab/prompt", sid=sid).json()[0]["text"] == f"task {text}"


def test_integers_of_any_size_arrive_exactly(raw: Raw) -> None:
    sid = raw.session(task={"n": 123456789012345678901234567890})
    assert raw.get("/lab/prompt", sid=sid).json()[0]["text"] == "task 123456789012345678901234567890"


def test_a_prompt_may_be_a_string() -> None:
    class Plain(Lab):
        def get_prompt(self) -> Any:
            return "Say hello."

    with serving(Server([Plain])) as url:
        raw = Raw(url)
        (block,) = raw.get("/plain/prompt", sid=raw.session("plain")).json()
    assert (block["type"], block["text"]) == ("text", "Say hello.")


def test_a_prompt_that_is_no_list_of_blocks_is_told_so_without_its_text() -> None:
    class Strange(Lab):
        def get_prompt(self) -> Any:
            return [self.secrets["key"]]

    with serving(Server([Strange])) as url:
        raw = Raw(url)
        answer = raw.get(
            "/strange/prompt", sid=raw.session("strange", headers=header({"key": "hunter2-hunter2"}))
        )
    assert answer.status == 500
    assert "Strange.get_prompt must return a str, or a list" in answer.detail
    assert "hunter2" not in answer.detail


def test_a_tool_that_is_stuck_in_a_thread_fails_its_session() -> None:
    id = fresh()
    with serving(Server([Lab], limits=Limits(tool_seconds=0.05))) as url:
        raw = Raw(url)
        sid = raw.session(task={"id": id})
        with raw.opened(sid, "hold") as stuck, raw.opened(sid, "nothing") as queued:
            assert "exceeded its time limit of 0.05 s and still runs" in stuck.rest().error()
            assert "still runs in its thread" in queued.rest().error()
        assert raw.get("/lab/prompt", sid=sid).status == 500
        assert "still runs in its thread" in raw.call(sid, "nothing").error()
        assert raw.post("/delete", sid=sid).status == 200
        Lab.gates[f"{id}.hold"].set()
    assert Lab.counts[f"{id}.teardown"] == 1


def test_a_delete_that_comes_too_late_to_stop_the_setup_tears_down_once() -> None:
    class Stubborn(Lab):
        async def setup(self) -> None:  # type: ignore[override]
            self.gates[f"{self.id}.held"].set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if self.task_spec.get("fail") == "setup":
                    raise RuntimeError("too late") from None

    with serving(Server([Stubborn])) as url:
        raw = Raw(url)
        for fail in ("", "setup"):
            id = fresh()
            sid = raw.session("stubborn", {"id": id, "fail": fail})
            assert Lab.gates[f"{id}.held"].wait(20)
            assert raw.post("/delete", sid=sid).status == 200
            assert Lab.counts[f"{id}.teardown"] == 1


def test_a_delete_does_not_cut_the_teardown_of_a_failed_setup_short() -> None:
    class Slow(Lab):
        async def teardown(self) -> None:  # type: ignore[override]
            self.gates[f"{self.id}.held"].set()
            await asyncio.sleep(0.05)  # a real duration, which a delete must not cut short
            self.counts[f"{self.id}.teardown"] += 1

    id = fresh()
    with serving(Server([Slow])) as url:
        raw = Raw(url)
        sid = raw.session("slow", {"id": id, "fail": "setup"})
        assert Lab.gates[f"{id}.held"].wait(20)
        assert raw.post("/delete", sid=sid).status == 200
        assert Lab.counts[f"{id}.teardown"] == 1


def test_a_prompt_that_hangs_is_given_up_and_its_thread_counted() -> None:
    class Mute(Lab):
        def get_prompt(self) -> Blocks:
            assert self.gates["mute.prompt"].wait(20)
            return []

    with serving(Server([Mute], limits=Limits(tool_seconds=1))) as url:
        raw = Raw(url)
        sid = raw.session("mute")
        answer = raw.get("/mute/prompt", sid=sid)
        assert (answer.status, answer.headers["ors-reason"]) == (500, "tool_timeout")
        assert answer.detail == "Environment failed in get_prompt: it did not end within 1 s"
        assert b"ors_threads_lost 1.0" in raw.get("/-/metrics").body
        assert raw.call(sid, "nothing", env="mute").result()["ok"]
        Lab.gates["mute.prompt"].set()


def test_a_request_whose_session_ends_meanwhile_is_410() -> None:
    class Listing(Lab):
        @classmethod
        def list_tools(cls) -> ListToolsOutput:
            if cls.gates["listing.served"].is_set():
                cls.gates["listing.asked"].set()
                assert cls.gates["listing.go"].wait(20)
            return super().list_tools()

    with serving(Server([Listing])) as url, ThreadPoolExecutor(1) as pool:
        Lab.gates["listing.served"].set()
        raw = Raw(url)
        sid = raw.session("listing")
        asked = pool.submit(raw.get, "/listing/task_tools", sid=sid)
        assert Lab.gates["listing.asked"].wait(20)
        raw.post("/delete", sid=sid)
        Lab.gates["listing.go"].set()
        assert asked.result().status == 410
