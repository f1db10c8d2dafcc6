"""MCP behind workers and routers: a token leads to the server of its session."""

import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ors import Limits, Server
from tests.support.environments import Lab
from tests.support.in_process_cluster import linked_servers, minted, routing
from tests.support.live_server import serving
from tests.support.mcp_messages import BOTH, body, called, event, path_of, send, streamed
from tests.support.waiting import wait_until
from tests.support.worker_command import crew


def test_every_server_takes_the_messages_of_a_session_that_another_has(tmp_path: Path) -> None:
    with linked_servers(2, tmp_path, [Lab]) as servers:
        sid = minted(servers, 1, task={"id": "mcp.linked"})
        raw = servers[0].raw
        path = path_of(raw, sid)
        assert raw.get("/-/mcp", sid=sid).json()["calls"] == 0
        for one in servers:
            assert called(one.raw, path, "echo", text="hi")["content"][0]["text"] == "hi"
            assert one.raw.get(path).headers["allow"] == "POST"
            assert send(one.raw, f"{path[:-1]}x", "tools/list").status == 404
        with streamed(raw, path, "hold", 1) as response:
            assert b'"progressToken":1' in event(response)
            Lab.gates["mcp.linked.hold"].set()
            assert b'"isError":false' in event(response)
        assert servers[1].raw.get("/-/mcp", sid=sid).json()["calls"] == 3
        raw.post("/delete", sid=sid)
        assert {send(one.raw, path, "tools/list").status for one in servers} == {404}


def test_a_session_with_an_id_of_its_clients_has_a_token_that_every_server_knows(tmp_path: Path) -> None:
    with linked_servers(2, tmp_path, [Lab]) as servers:
        for name in ("mine-1", "mine-2", "mine-3", "mine-4"):
            made = servers[0].raw.post("/create", {"env_name": "lab", "task_spec": {}}, sid=name)
            assert made.status == 200
            path = path_of(servers[1].raw, name)
            for one in servers:
                assert called(one.raw, path, "echo", text=name)["content"][0]["text"] == name


def test_a_router_with_keys_takes_messages_without_one() -> None:
    with serving(Server([Lab], slot=3, api_keys=["team=s3cret"])) as url, routing([url], "s3cret") as raw:
        key = {"X-API-Key": "s3cret"}
        sid = str(raw.post("/create_session", headers=key).json()["sid"])
        raw.post("/create", {"env_name": "lab", "task_spec": {}}, sid=sid, headers=key)
        assert raw.post("/-/mcp", sid=sid).status == 401
        path = path_of(raw, sid, X_API_Key="s3cret")
        # Headers and body arrive apart, as most clients send them.
        sent = json.dumps(body("tools/call", name="echo", arguments={"text": "x" * 100_000})).encode()
        with socket.create_connection((urlsplit(raw.url).hostname, urlsplit(raw.url).port)) as connection:
            head = [
                f"POST {path} HTTP/1.1",
                "Host: 127.0.0.1",
                f"Accept: {BOTH['Accept']}",
                "Connection: close",
            ]
            connection.sendall("\r\n".join([*head, f"Content-Length: {len(sent)}", "", ""]).encode())
            connection.sendall(sent[:1000])
            for _ in range(3):  # a question about the key would be answered by now
                assert raw.get("/list_environments", headers=key).status == 200
            connection.sendall(sent[1000:])
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200")
        assert b'"isError":false' in answer
        assert raw.get("/-/mcp", sid=sid, headers=key).json()["calls"] == 1


def test_a_call_whose_server_is_lost_is_an_error_and_not_run_again(tmp_path: Path) -> None:
    with linked_servers(2, tmp_path, [Lab], limits=Limits(grace_seconds=0.1)) as servers:
        path = path_of(servers[0].raw, minted(servers, 1, task={"id": "mcp.lost"}))
        connection = servers[0].raw.connection()
        sent = json.dumps(body("tools/call", 5, name="stay")).encode()
        connection.request("POST", path, sent, {"Accept": "application/json"})
        wait_until(Lab.gates["mcp.lost.held"].is_set)
        servers[1].cut()
        answer = json.loads(connection.getresponse().read())
        connection.close()
        assert (answer["id"], answer["error"]["code"]) == (5, -32603)
        assert answer["error"]["message"].startswith("Session lost")


@pytest.mark.long
def test_workers_of_one_port_share_their_tokens(tmp_path: Path) -> None:
    with crew(tmp_path, 2) as workers:
        for slot in (0, 1):
            path = path_of(workers.raw, workers.session(slot))
            names = set()
            for _ in range(8):  # a new connection each, which either worker may get
                names |= {
                    each["name"] for each in send(workers.raw, path, "tools/list").json()["result"]["tools"]
                }
            assert "note" in names
