"""Tool calls over HTTP: order, replay, once, refusals, limits."""

import asyncio
import json
import re
import socket
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ors import Limits, Server, ToolOutput, tool
from ors.types import JSONObject, TextBlock
from tests.requirements import proves
from tests.support.environments import Lab, said
from tests.support.live_server import serving
from tests.support.raw_http import Raw, events


def fresh() -> str:
    return uuid.uuid4().hex


def text(result: Any) -> str:
    return str(result["output"]["blocks"][0]["text"])


# ── The wire ─────────────────────────────────────────────────────────────────────────────────────


@proves("call.order", "format.at-once", "format.lines", "format.headers", "call.all-keys")
def test_an_immediate_result_is_one_answer_with_a_length(raw: Raw) -> None:
    sid = raw.session()
    raw.get("/lab/prompt", sid=sid)  # from now on it is set up
    answer = raw.call(sid, "echo", {"text": "hi"})
    task_id = answer.events()[0][1]
    assert re.fullmatch(r"[0-9a-f]{32}", task_id)
    assert answer.body.decode() == (
        f"event: task_id\ndata: {task_id}\n\n"
        'event: end\ndata: {"ok":true,"output":{"blocks":[{"text":"hi","detail":null,"type":"text"}],'
        '"metadata":null,"reward":null,"finished":false}}\n\n'
    )
    assert answer.headers["content-length"] == str(len(answer.body))
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"


@proves("format.end-of-body")
def test_a_result_that_takes_time_ends_together_with_its_body(raw: Raw) -> None:
    id = fresh()
    sid = raw.session(task={"id": id})
    body = b'{"name": "hold", "input": {}}'
    with socket.create_connection((raw.host, raw.port), 20) as connection:
        head = f"POST /lab/call HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: {sid}\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        received = b""
        while b"event: task_id" not in received:
            received += connection.recv(65536)
        Lab.gates[f"{id}.hold"].set()
        last = connection.recv(65536)
    assert b"event: end" in last
    assert last.endswith(b"\r\n0\r\n\r\n")


@proves("call.pings")
def test_an_open_stream_is_pinged_with_comments() -> None:
    id = fresh()
    with serving(Server([Lab], limits=Limits(ping_seconds=0.05))) as url:
        raw = Raw(url)
        with raw.opened(raw.session(task={"id": id}), "hold") as call:
            pings = call.response.read1(100) + call.response.read1(100)
            Lab.gates[f"{id}.hold"].set()
            rest = call.rest()
    assert pings == b": ping\n\n: ping\n\n"
    assert rest.result()["ok"] is True


@proves("call.all-keys")
def test_an_output_carries_all_keys_in_order(raw: Raw) -> None:
    result = raw.call(raw.session(), "reward", {"value": 0.5, "finished": True}).result()
    assert list(result) == ["ok", "output"]
    assert list(result["output"].items())[1:] == [
        ("metadata", {"k": [1, None]}),
        ("reward", 0.5),
        ("finished", True),
    ]
    assert list(result["output"]["blocks"][0]) == ["text", "detail", "type"]
    prompt = raw.get("/lab/prompt", sid=raw.session()).json()
    assert [list(block) for block in prompt] == [
        ["text", "detail", "type"],
        ["data", "mimeType", "detail", "type"],
    ]


@proves("format.small", "format.large")
def test_results_up_to_4096_bytes_are_one_event_and_longer_ones_pieces(raw: Raw) -> None:
    sid = raw.session()
    frame = len(json.dumps(raw.call(sid, "echo", {"text": ""}).result(), separators=(",", ":")))
    for size, names in [(4096, ["task_id", "end"]), (4097, ["task_id", "chunk", "end"])]:
        answer = raw.call(sid, "echo", {"text": "x" * (size - frame)})
        assert [name for name, _ in answer.events()] == names
        assert text(answer.result()) == "x" * (size - frame)


@proves("format.chunk-size-utf8", "format.reassembly", "format.no-edge-space")
@pytest.mark.parametrize(
    "given",
    [
        "ü漢😀" * 4000,
        " " * 20_000,
        "a b\u00a0c\u2003d\ufeff" * 3000,
        "\u2028\u0085\u2029\x1c\x0b\r\n" * 2000,
        "\ud800x" * 3000,
    ],
)
def test_any_text_arrives_whole_in_small_clean_pieces(raw: Raw, given: str) -> None:
    answer = raw.call(raw.session(), "echo", {"text": given})
    assert text(answer.result()) == given
    for _, data in answer.events():
        assert len(data.encode()) <= 4096
        assert data == data.strip().strip("\ufeff")
    assert len(answer.body.decode().splitlines()) == answer.body.count(b"\n")


@proves("format.surrogate")
def test_a_lone_surrogate_loses_nothing(raw: Raw) -> None:
    assert text(raw.call(raw.session(), "echo", {"text": "a\ud800b"}).result()) == "a\ud800b"


@proves("call.environment-mismatch")
def test_another_environment_in_the_path_is_404(raw: Raw) -> None:
    sid = raw.session("lab")
    assert raw.call(sid, "echo", {"text": ""}, env="other").status == 404
    assert raw.get("/other/prompt", sid=sid).status == 200  # "the path parameter is not validated"


# ── Rejoined, and once ───────────────────────────────────────────────────────────────────────────


@proves("rejoin.finished")
def test_a_finished_call_is_replayed_and_not_run_again(raw: Raw) -> None:
    id = fresh()
    sid = raw.session(task={"id": id})
    first = raw.call(sid, "echo", {"text": "once"})
    task_id = first.events()[0][1]
    again = raw.call(sid, "boom", {"nonsense": 1}, task_id=task_id)
    assert again.body == first.body
    assert Lab.counts[f"{id}.echo"] == 1


@proves("rejoin.running")
def test_a_running_call_is_joined_from_its_beginning(raw: Raw) -> None:
    id = fresh()
    sid = raw.session(task={"id": id})
    with raw.opened(sid, "hold") as call:
        call.response.close()
        with ThreadPoolExecutor(2) as pool:
            joined = [pool.submit(raw.call, sid, "hold", {}, task_id=call.task_id) for _ in range(2)]
            Lab.gates[f"{id}.hold"].set()
            answers = [future.result() for future in joined]
    for answer in answers:
        assert answer.events()[0] == ("task_id", call.task_id)
        assert text(answer.result()) == "held"
    assert Lab.counts[f"{id}.hold"] == 1


@proves("rejoin.kept-bytes", "call.spent-key")
def test_kept_results_are_bounded_in_bytes_and_a_lost_one_never_runs_again() -> None:
    id = fresh()
    with serving(Server([Lab], limits=Limits(kept_bytes=50_000))) as url:
        raw = Raw(url)
        sid = raw.session(task={"id": id})
        first = raw.call(sid, "echo", {"text": "a" * 30_000}, headers={"Idempotency-Key": "one"})
        second = raw.call(sid, "echo", {"text": "b" * 30_000})
        ids = [answer.events()[0][1] for answer in (first, second)]
        assert raw.call(sid, "echo", {"text": "x"}, task_id=ids[0]).error() == "result no longer kept"
        again = raw.call(sid, "echo", {"text": "x"}, headers={"Idempotency-Key": "one"})
        assert again.error() == "result no longer kept"
        assert raw.call(sid, "echo", {"text": "x"}, task_id=ids[1]).body == second.body
    assert Lab.counts[f"{id}.echo"] == 2


@proves("rejoin.unknown-echo", "rejoin.unknown-runs-nothing")
def test_an_unknown_task_id_is_echoed_and_nothing_runs(raw: Raw) -> None:
    id = fresh()
    sid, other = raw.session(task={"id": id}), raw.session()
    foreign = raw.call(other, "echo", {"text": "secret"}).events()[0][1]
    for task_id in ("nope", foreign, ""):
        answer = raw.call(sid, "echo", {"text": ""}, task_id=task_id)
        assert answer.events() == [("task_id", task_id), ("error", "unknown task_id")]
    assert Lab.counts[f"{id}.echo"] == 0


@proves("call.once")
def test_a_key_starts_a_call_once_and_attaches_to_it_afterwards(raw: Raw) -> None:
    id = fresh()
    sid = raw.session(task={"id": id})
    key = {"Idempotency-Key": "k-1"}
    with ThreadPoolExecutor(8) as pool:
        racing = [pool.submit(raw.call, sid, "hold", {}, headers=key) for _ in range(8)]
        assert Lab.gates[f"{id}.held"].wait(20)
        Lab.gates[f"{id}.hold"].set()
        bodies = {future.result().body for future in racing}
    assert len(bodies) == 1
    assert raw.call(sid, "hold", {}, headers=key).body in bodies
    assert Lab.counts[f"{id}.hold"] == 1
    raw.call(sid, "hold", {}, headers={"Idempotency-Key": "k-2"})
    assert Lab.counts[f"{id}.hold"] == 2


@proves("call.spent-key")
def test_a_key_whose_result_has_expired_answers_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ors.server.app.REAP_SECONDS", 0.01)
    id, key = fresh(), {"Idempotency-Key": "k"}
    with serving(Server([Lab], limits=Limits(kept_seconds=0))) as url:
        raw = Raw(url)
        sid = raw.session(task={"id": id})
        task_id = raw.call(sid, "echo", {"text": "x"}, headers=key).events()[0][1]
        while "unknown task_id" not in raw.call(sid, "echo", {"text": "x"}, task_id=task_id).body.decode():
            pass
        assert raw.call(sid, "echo", {"text": "x"}, headers=key).error() == "result no longer kept"
    assert Lab.counts[f"{id}.echo"] == 1


@proves("call.once")
def test_keys_belong_to_their_session_and_must_be_printable(raw: Raw) -> None:
    one, two = raw.session(), raw.session()
    bodies = [
        raw.call(sid, "echo", {"text": "x"}, headers={"Idempotency-Key": "k"}).body for sid in (one, two)
    ]
    assert bodies[0] != bodies[1]
    for key in ("", " ", "x" * 257):
        answer = raw.call(one, "echo", {"text": "x"}, headers={"Idempotency-Key": key})
        assert answer.status == 400
        assert "Idempotency-Key" in answer.detail


# ── Refused and failed ───────────────────────────────────────────────────────────────────────────


@proves("call.unknown-tool-recoverable", "call.bad-input-recoverable")
def test_what_the_agent_can_recover_from_is_an_end_with_ok_false(raw: Raw) -> None:
    sid = raw.session()
    unknown = raw.call(sid, "nope").result()
    assert (unknown["ok"], unknown["reason"]) == (False, "not_found")
    assert "'nope' is not a valid tool" in unknown["error"]
    bad = raw.call(sid, "echo", {"txt": "x"}).result()
    assert (bad["ok"], bad["reason"]) == (False, "input_validation")
    assert bad["error"].startswith("Tool input validation error")
    assert "text" in bad["error"]
    raw.call(sid, "reward", {"finished": True})
    late = raw.call(sid, "echo", {"text": "x"}).result()
    assert (late["ok"], late["reason"]) == (False, "episode_finished")


@proves("call.unknown-tool-recoverable")
@pytest.mark.parametrize(
    "name", ["setup", "teardown", "get_prompt", "__init__", "_call_tool", "id", "counts"]
)
def test_only_tools_can_be_called(raw: Raw, name: str) -> None:
    assert raw.call(raw.session(), name).result()["reason"] == "not_found"


@proves("call.raises-text", "call.raises-lives")
@pytest.mark.parametrize("name", ["boom", "boom_sync"])
def test_a_tool_that_raises_is_an_error_event_and_the_session_goes_on(raw: Raw, name: str) -> None:
    sid = raw.session()
    answer = raw.call(sid, name, {"text": "first\nsecond: line\r\n\nthird"})
    assert answer.error() == "Tool execution failed: first\nsecond: line\n\nthird"
    assert answer.body.count(b"\ndata: ") == 5
    assert raw.call(sid, "echo", {"text": "on"}).result()["ok"] is True


@proves("call.tool-error")
def test_a_tool_error_is_a_refusal_with_the_tools_words(raw: Raw) -> None:
    result = raw.call(raw.session(), "refuse", {"text": "not today"}).result()
    assert result == {"ok": False, "error": "not today", "reason": "mood"}


@proves("call.raises-text")
@pytest.mark.parametrize(
    ("how", "seen"), [("none", []), ("exception", ["kaboom"]), ("stacktrace", ["kaboom", "environments.py"])]
)
def test_return_errors_decides_what_clients_see(how: Any, seen: list[str]) -> None:
    with serving(Server([Lab], return_errors=how)) as url:
        raw = Raw(url)
        error = raw.call(raw.session(), "boom", {"text": "kaboom"}).error()
        detail = raw.get("/lab/prompt", sid=raw.session(task={"fail": "setup"})).detail
    assert error.startswith("Tool execution failed")
    assert detail.startswith("Environment setup failed")
    assert [word for word in ("kaboom", "environments.py") if word in error] == seen
    assert ("no setup today" in detail) == (how != "none")


@proves("call.cancelled")
def test_a_tool_that_is_cancelled_or_tries_to_leave_is_an_error(raw: Raw) -> None:
    sid = raw.session()
    assert "cancelled" in raw.call(sid, "cancel").error()
    assert "Tool execution failed" in raw.call(sid, "leave").error()
    assert "Tool execution failed" in raw.call(sid, "leave_sync").error()
    assert "a tool returns a ToolOutput" in raw.call(sid, "wrong_type").error()
    assert raw.call(sid, "nothing").result()["ok"] is True


@proves("call.limits")
def test_a_tool_over_its_time_limit_is_an_error_that_says_so() -> None:
    class Hasty(Lab):
        @tool(timeout=0.05)
        async def nap(self) -> ToolOutput:
            """Sleeps too long."""
            await asyncio.sleep(30)
            return said("never")

        @tool
        async def own_timeout(self) -> ToolOutput:
            """Raises a timeout of its own."""
            raise TimeoutError("my own")

    with serving(Server([Hasty], limits=Limits(tool_seconds=0.1))) as url:
        raw = Raw(url)
        sid = raw.session("hasty")
        assert raw.call(sid, "nap", env="hasty").error() == "Tool 'nap' exceeded its time limit of 0.05 s"
        assert "time limit of 0.1 s" in raw.call(sid, "stay", env="hasty").error()
        assert raw.call(sid, "own_timeout", env="hasty").error() == "Tool execution failed: my own"
        assert raw.call(sid, "nothing", env="hasty").result()["ok"] is True


@proves("call.limits")
def test_a_result_over_its_limit_is_an_error_that_says_so() -> None:
    with serving(Server([Lab], limits=Limits(result_bytes=1000))) as url:
        raw = Raw(url)
        sid = raw.session()
        assert "output limit" in raw.call(sid, "echo", {"text": "x" * 1000}).error()
        assert raw.call(sid, "echo", {"text": "x"}).result()["ok"] is True


@proves("call.strange-reward")
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_reward_that_is_no_number_is_an_error(raw: Raw, value: str) -> None:
    assert "finite" in raw.call(raw.session(), "strange_reward", {"text": value}).error()


@proves("call.reward")
def test_no_reward_is_null_and_zero_is_zero(raw: Raw) -> None:
    sid = raw.session()
    rewards = [raw.call(sid, "reward", {"value": v}).result()["output"]["reward"] for v in (None, 0, -1.5)]
    assert rewards == [None, 0.0, -1.5]


# ── Turns ────────────────────────────────────────────────────────────────────────────────────────


@proves("call.queued-after-finished")
def test_a_call_queued_behind_the_finishing_one_is_refused(raw: Raw) -> None:
    id = fresh()
    sid = raw.session(task={"id": id})
    with raw.opened(sid, "finish", {"value": 1}) as first, raw.opened(sid, "finish", {"value": 1}) as second:
        Lab.gates[f"{id}.hold"].set()
        assert first.rest().result()["output"]["reward"] == 1
        assert second.rest().result()["reason"] == "episode_finished"


@proves("call.finished-opt-out")
def test_an_environment_may_allow_calls_after_the_end() -> None:
    class Endless(Lab):
        calls_after_finished = True

    with serving(Server([Endless])) as url:
        raw = Raw(url)
        sid = raw.session("endless")
        for _ in range(2):
            result = raw.call(sid, "reward", {"value": 1, "finished": True}, env="endless").result()
            assert result["output"]["finished"] is True


@proves("call.in-order")
def test_calls_of_one_session_run_one_at_a_time_in_their_order(raw: Raw) -> None:
    id = fresh()
    sid = raw.session(task={"id": id})
    with raw.opened(sid, "hold") as first:
        queued = []
        with ThreadPoolExecutor(5) as pool:
            for n in range(5):
                before = Lab.counts[f"{id}.queued"]
                queued.append(pool.submit(raw.call, sid, "order", {"name": str(n)}))
                _wait_until_running(raw, sid, before + n + 2)
            assert Lab.task_log(id) == []
            Lab.gates[f"{id}.hold"].set()
            assert all(future.result().result()["ok"] for future in queued)
        assert first.rest().result()["ok"] is True
    assert Lab.task_log(id) == [f"{sign}{n}" for n in range(5) for sign in "+-"]


def _wait_until_running(raw: Raw, sid: str, count: int) -> None:
    # The server runs in this process: what it holds is there to look at.
    import gc

    from ors.server.sessions.session import ServerSession

    session = next(o for o in gc.get_objects() if isinstance(o, ServerSession) and o.sid == sid)
    while session.running < count:
        pass


@proves("call.concurrent")
def test_concurrent_tools_overlap_with_each_other(raw: Raw) -> None:
    id = fresh()
    sid = raw.session(task={"id": id})
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(raw.call, sid, "meet", {"name": name}) for name in "ab"]
        assert [text(future.result().result()) for future in both] == ["met: True", "met: True"]


@proves("call.concurrent")
def test_a_concurrent_tool_does_not_overlap_with_one_that_is_not(raw: Raw) -> None:
    id = fresh()
    sid = raw.session(task={"id": id})
    with raw.opened(sid, "hold") as first, raw.opened(sid, "meet", {"name": "a"}) as second:
        assert not Lab.gates[f"{id}.a"].is_set()
        Lab.gates[f"{id}.b"].set()
        Lab.gates[f"{id}.hold"].set()
        assert first.rest().result()["ok"] is True
        assert text(second.rest().result()) == "met: True"


@proves("call.others-go-on", "call.off-loop")
def test_no_session_waits_for_another(raw: Raw) -> None:
    ids = [fresh() for _ in range(64)]
    sids = [raw.session(task={"id": id}) for id in ids]
    with ThreadPoolExecutor(64) as pool:
        held = [pool.submit(raw.call, sid, "hold") for sid in sids]
        for id in ids:  # 64 threads are stuck at once, and one more call still goes through
            assert Lab.gates[f"{id}.held"].wait(20)
        assert raw.call(raw.session(), "echo_sync", {"text": "x"}).result()["ok"] is True
        for id in ids:
            Lab.gates[f"{id}.hold"].set()
        assert all(future.result().result()["ok"] for future in held)


def test_results_that_only_json_can_say_arrive(raw: Raw) -> None:
    class Odd(Lab):
        @tool
        async def odd(self) -> ToolOutput:
            """Returns unusual values."""
            metadata: JSONObject = {"big": 2**70, "odd": [{1}, {1: {"x": float("nan")}}], "tuple": (1,)}
            return ToolOutput(blocks=(TextBlock(text="odd"),), metadata=metadata)  # type: ignore[arg-type]

        @tool
        async def impossible(self) -> ToolOutput:
            """Returns what JSON cannot say."""
            return said("x", metadata={"o": [object()]})

    with serving(Server([Odd])) as url:
        raw = Raw(url)
        sid = raw.session("odd")
        metadata = raw.call(sid, "odd", env="odd").result()["output"]["metadata"]
        assert metadata == {"big": 2**70, "odd": [[1], {"1": {"x": None}}], "tuple": [1]}
        assert "Tool execution failed" in raw.call(sid, "impossible", env="odd").error()


def test_the_events_of_a_call_are_whole_when_read_byte_by_byte(raw: Raw) -> None:
    id = fresh()
    with raw.opened(raw.session(task={"id": id}), "hold") as call:
        Lab.gates[f"{id}.hold"].set()
        rest = b"".join(iter(lambda: call.response.read(1), b""))
    assert [name for name, _ in events(call.head + rest)] == ["task_id", "end"]
