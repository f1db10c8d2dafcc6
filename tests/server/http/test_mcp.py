"""A session as an MCP server: who gets its path, what is answered there, and for how long."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from ors import Limits, Server
from ors.client import ORS
from ors.errors import SessionLost
from ors.server.http.requests import Request
from tests.requirements import proves
from tests.support.environments import Lab
from tests.support.live_server import app_of, hosted, serving
from tests.support.mcp_messages import body, called, event, path_of, send, streamed
from tests.support.raw_http import Raw
from tests.support.terminal_environment import Essay
from tests.support.waiting import wait_until

KEYS = ["owner=s3cret", "other=0ther"]


def lab(raw: Raw, id: str) -> tuple[str, str]:
    """A session with its gates under `id`, and its path."""
    sid = raw.session(task={"id": id})
    return sid, path_of(raw, sid)


@proves("mcp.token")
def test_only_the_owner_of_a_session_gets_its_path_and_always_the_same() -> None:
    with serving(Server([Lab], api_keys=KEYS)) as url:
        raw = Raw(url)
        sid = raw.session(headers={"X-API-Key": "s3cret"})
        path = path_of(raw, sid, X_API_Key="s3cret")
        assert path == path_of(raw, sid, X_API_Key="s3cret")
        assert sid not in path
        assert send(raw, f"/-/mcp/{sid}", "tools/list").status == 404
        for method in ("POST", "GET"):
            assert raw(method, "/-/mcp", sid=sid).status == 401
            assert raw(method, "/-/mcp", sid=sid, headers={"X-API-Key": "0ther"}).status == 404
            assert raw(method, "/-/mcp", headers={"X-API-Key": "s3cret"}).status == 400
        assert called(raw, path, "echo", text="hi")["content"] == [{"type": "text", "text": "hi"}]


def test_no_path_is_given_out_for_a_session_that_could_not_be_set_up(raw: Raw) -> None:
    answer = raw.post("/-/mcp", sid=raw.session(task={"id": "unset", "fail": "setup"}))
    assert (answer.status, "no setup today" in answer.detail) == (500, True)


def test_two_sessions_have_paths_of_their_own(raw: Raw) -> None:
    (one, first), (_, second) = lab(raw, "mcp.one"), lab(raw, "mcp.two")
    assert first != second
    called(raw, second, "reward", value=0.5)
    assert raw.get("/-/mcp", sid=one).json()["calls"] == 0


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "HEAD"])
def test_only_posts_are_taken(raw: Raw, method: str) -> None:
    answer = raw(method, lab(raw, "mcp.posts")[1], headers={"Accept": "text/event-stream"})
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


def test_a_session_that_has_ended_and_a_token_that_nobody_has_are_not_found(raw: Raw) -> None:
    sid, path = lab(raw, "mcp.ended")
    raw.post("/delete", sid=sid)
    for gone in (path, f"{path}0", f"{path}/x", path[:-1], "/-/mcp/x", f"/-/mcp/{sid}"):
        assert send(raw, gone, "tools/list").status == 404


def test_nobody_gets_a_session_of_the_protocol_and_cancellations_of_nothing_are_accepted(raw: Raw) -> None:
    _, path = lab(raw, "mcp.session")
    first = send(raw, path, "initialize", protocolVersion="2025-06-18")
    assert first.json()["result"]["instructions"].startswith("task None")
    assert "mcp-session-id" not in first.headers
    for method in ("notifications/initialized", "notifications/cancelled"):
        answer = send(raw, path, method, id=None, requestId=1)
        assert (answer.status, answer.body) == (202, b"")


def test_headers_that_disagree_with_the_message_are_refused(raw: Raw) -> None:
    _, path = lab(raw, "mcp.headers")
    meta = {
        f"io.modelcontextprotocol/{name}": "2026-07-28" for name in ("protocolVersion", "clientCapabilities")
    }
    said = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "echo"}
    params = {"name": "echo", "arguments": {"text": "x"}, "_meta": meta}
    good = send(raw, path, "tools/call", said, **params)
    assert good.json()["result"]["resultType"] == "complete"
    bad = send(raw, path, "tools/call", {**said, "Mcp-Name": "boom"}, **params)
    assert (bad.status, bad.json()["error"]["code"]) == (400, -32020)


@pytest.mark.parametrize("serve", [serving, hosted])
def test_a_long_call_shows_progress_and_then_its_result(
    serve: Callable[[Server], AbstractContextManager[str]],
) -> None:
    with serve(Server([Lab], limits=Limits(ping_seconds=0.02))) as url:
        raw, id = Raw(url), f"mcp.{serve.__name__}"
        _, path = lab(raw, id)
        with streamed(raw, path, "hold", 7) as response:
            assert response.getheader("Content-Type", "").startswith("text/event-stream")
            counts = [json.loads(event(response).split(b"data: ")[1])["params"] for _ in range(3)]
            assert counts == [{"progressToken": 7, "progress": count} for count in (1, 2, 3)]
            Lab.gates[f"{id}.hold"].set()
            events = [event(response)]
            while b"progress" in events[-1]:
                events.append(event(response))
            assert json.loads(events[-1].split(b"data: ")[1])["id"] == "slow"
            assert response.read() == b""


def test_a_client_that_asks_for_no_progress_gets_comments_and_one_that_takes_no_events_json(raw: Raw) -> None:
    _, path = lab(raw, "mcp.quiet")
    with streamed(raw, path, "hold", None) as response:
        assert event(response) == b": ping"
        Lab.gates["mcp.quiet.hold"].set()
        assert b'"isError":false' in event(response)
    Lab.gates["mcp.quiet.hold"].clear()
    connection = raw.connection()
    sent = json.dumps(body("tools/call", name="hold")).encode()
    connection.request("POST", path, sent, {"Accept": "application/json"})
    with streamed(raw, path, "hold", None) as response:  # by now, the other one would have been a stream
        Lab.gates["mcp.quiet.hold"].set()
        event(response)
    answer = connection.getresponse()
    assert answer.getheader("Content-Type") == "application/json"
    assert not json.loads(answer.read())["result"]["isError"]
    connection.close()


def test_a_call_goes_on_when_its_client_leaves_and_counts(raw: Raw) -> None:
    sid, path = lab(raw, "mcp.leaves")
    with streamed(raw, path, "finish", 1, value=0.25, finished=True) as response:
        event(response)
    Lab.gates["mcp.leaves.hold"].set()
    wait_until(lambda: raw.get("/-/mcp", sid=sid).json()["finished"])
    assert raw.get("/-/mcp", sid=sid).json() == {
        "calls": 1,
        "rewards": [0.25],
        "finished": True,
        "failed": False,
    }


def test_a_call_with_an_idempotency_key_runs_once(raw: Raw) -> None:
    sid, path = lab(raw, "mcp.once")
    sent = body("tools/call", name="echo", arguments={"text": "x"})
    answers = [raw.post(path, sent, headers={"Idempotency-Key": "k"}).json() for _ in range(2)]
    assert answers[0] == answers[1]
    assert Lab.counts["mcp.once.echo"] == 1
    assert raw.get("/-/mcp", sid=sid).json()["calls"] == 1


def test_a_call_over_a_limit_is_an_error_that_the_model_reads() -> None:
    with serving(Server([Lab], limits=Limits(calls=1))) as url:
        raw = Raw(url)
        _, path = lab(raw, "mcp.limit")
        with streamed(raw, path, "hold", 1) as response:
            event(response)
            told = called(raw, path, "echo", text="x")
            assert told["isError"]
            assert told["content"][0]["text"] == "The server is at its limit of 1 concurrent calls."
            Lab.gates["mcp.limit.hold"].set()
            event(response)


def test_messages_count_as_activity() -> None:
    server = Server([Lab], limits=Limits(idle_seconds=100))
    with serving(server) as url:
        raw = Raw(url)
        sid, path = lab(raw, "mcp.idle")
        sessions = app_of(server).sessions
        before = sessions._live[sid].seen = sessions._live[sid].seen - 50
        send(raw, path, "tools/list")
        assert sessions._live[sid].seen > before + 49


def test_a_terminal_tool_is_listed_and_called_as_a_tool() -> None:
    with serving(Server([Essay])) as url:
        raw = Raw(url)
        sid = raw.session("essay", {"word": "apple"})
        path = path_of(raw, sid)
        (only,) = send(raw, path, "tools/list").json()["result"]["tools"]
        assert (only["name"], only["inputSchema"]["required"]) == ("grade", ["answer"])
        assert called(raw, path, "grade", answer="elppa")["content"][-1]["text"].startswith(
            "The episode is over"
        )
        assert raw.get("/-/mcp", sid=sid).json()["rewards"] == [1.0]


def test_arguments_of_a_client_without_a_key_may_be_long_but_not_endless() -> None:
    server = Server([Lab], api_keys=KEYS)
    with serving(server) as url:
        raw = Raw(url)
        path = path_of(raw, raw.session(headers={"X-API-Key": "s3cret"}), X_API_Key="s3cret")
        text = "x" * 500_000
        assert called(raw, path, "echo", text=text)["content"][0]["text"] == text
        assert app_of(server).admit(Request("POST", path, b"", {}, b"")) == 2**20
        assert app_of(server).admit(Request("GET", "/health", b"", {}, b"")) == 2**16


def test_what_is_no_message_is_told_so(raw: Raw) -> None:
    _, path = lab(raw, "mcp.nonsense")
    for sent, code in ((b"{", -32700), (b"[]", -32600), (b'{"x": "' + b"y" * 70_000, -32700)):
        answer = raw.post(path, sent)
        assert (answer.status, answer.json()["error"]["code"]) == (400, code)


def test_the_clients_give_the_url_and_the_score() -> None:
    with serving(Server([Lab])) as url, ORS(f"{url}/") as ors:
        with ors.environment("lab").session(split="train", index=0) as session:
            mcp = session.mcp_url()
            assert mcp.startswith(f"{url}/-/mcp/")
            called(Raw(url), mcp.removeprefix(url), "reward", value=0.5)
            session.call_tool("reward", {"value": 0})
            score = session.score()
            assert (score.calls, score.rewards, score.finished) == (2, [0.5, 0.0], False)
        with pytest.raises(SessionLost):
            session.mcp_url()
