"""What somebody reaches who has the MCP URL of a session, and nothing else: a coding agent with a shell."""

import itertools
import json
from typing import Any

import pytest

from ors import Server
from ors.server.routes import ROUTES
from tests.requirements import proves
from tests.support.live_server import app_of, serving
from tests.support.mcp_environment import ANSWER, REWARD, SECRET, STEP_REWARD, Vault
from tests.support.mcp_messages import called, path_of, send
from tests.support.raw_http import Raw

OWNER = {"X-API-Key": "s3cret"}
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")
BODIES: tuple[Any, ...] = (
    None,
    {"name": "submit", "input": {"answer": "guess"}},
    {"split": "train", "index": 0},
    {"split": "train", "env_name": "vault", "n": 2},
)


def places(token: str) -> list[dict[str, str]]:
    """The headers in which a token might be taken for something better."""
    names = ("X-Session-ID", "X-API-Key", "Idempotency-Key", "Mcp-Session-Id")
    single = [{name: token} for name in names]
    both = [
        {"X-Session-ID": token, "X-API-Key": token},
        {"X-Session-ID": token, "Authorization": f"Bearer {token}"},
    ]
    return [{}, *single, *both]


def paths(token: str) -> list[str]:
    filled = {row.pattern.replace("{environment}", "vault").replace("{sid}", token) for row in ROUTES}
    filled = {path.replace("{file}", "inspector.js") for path in filled}
    more = {
        "/",
        "/vault",
        "/-/mcp/",
        f"/-/mcp/{token}/..",
        f"/-/mcp/{token}/score",
        f"/-/mcp/../sessions/{token}",
    }
    asked = {f"/-/mcp/{token}?sid={token}", f"/-/mcp?token={token}", f"/-/sessions?sid={token}"}
    return sorted(filled | more | asked)


def open_session(raw: Raw, headers: dict[str, str]) -> str:
    sid = str(raw.post("/create_session", headers=headers).json()["sid"])
    made = raw.post("/create", {"env_name": "vault", "split": "train", "index": 0}, sid=sid, headers=headers)
    assert made.status == 200, made
    return sid


@proves("mcp.token")
@pytest.mark.parametrize("inspect", [False, True])
def test_with_the_url_of_a_session_nobody_reaches_more_than_mcp_on_it(inspect: bool) -> None:
    server = Server([Vault], api_keys=["owner=s3cret"])
    app_of(server).inspect(inspect)
    with serving(server) as url:
        raw = Raw(url)
        sid, other = open_session(raw, OWNER), open_session(raw, OWNER)
        path = path_of(raw, sid, X_API_Key="s3cret")
        token = path.rpartition("/")[2]
        called(raw, path, "hint")
        seen = b""
        for method, place, headers in itertools.product(METHODS, paths(token), places(token)):
            for body in BODIES if method == "POST" else BODIES[:1]:
                answer = raw(method, place, body, headers=headers)
                seen += answer.body + json.dumps(dict(answer.headers)).encode()
                assert answer.status != 500, (method, place, headers, answer)
        for text in (str(REWARD), str(STEP_REWARD), ANSWER, SECRET, sid, other, "s3cret", "open it"):
            assert text.encode() not in seen
        score = raw.get("/-/mcp", sid=sid, headers=OWNER).json()
        assert score == {"calls": 1, "rewards": [STEP_REWARD], "finished": False, "failed": False}
        assert raw.post("/ping", sid=other, headers=OWNER).status == 200
        assert len(app_of(server).sessions) == 2


def test_no_message_tells_more_than_the_tools_give() -> None:
    with serving(Server([Vault], api_keys=["owner=s3cret"])) as url:
        raw = Raw(url)
        sid = open_session(raw, OWNER)
        path = path_of(raw, sid, X_API_Key="s3cret")
        methods = [
            "initialize",
            "server/discover",
            "tools/list",
            "prompts/list",
            "prompts/get",
            "resources/list",
        ]
        methods += ["resources/read", "resources/templates/list", "completion/complete", "logging/setLevel"]
        methods += [
            "tasks/list",
            "tasks/get",
            "tasks/result",
            "roots/list",
            "sampling/createMessage",
            "ping",
            "x",
        ]
        seen = b""
        for method, name in itertools.product(methods, ("task", "submit", "ors://task", sid, 7, None)):
            params: dict[str, Any] = {"name": name, "uri": name, "taskId": name, "protocolVersion": name}
            seen += send(raw, path, method, **params).body
        for name, given in (("hint", {}), ("submit", {"answer": ANSWER[::-1]}), ("hint", {})):
            seen += json.dumps(called(raw, path, name, **given)).encode()
        assert b"episode is over" in seen
        for text in (str(STEP_REWARD), ANSWER, SECRET, "s3cret", "reward", "metadata", "open it"):
            assert text.encode() not in seen


def test_a_token_is_no_session_id_where_there_are_no_keys() -> None:
    server = Server([Vault])
    with serving(server) as url:
        raw = Raw(url)
        sid = open_session(raw, {})
        token = path_of(raw, sid).rpartition("/")[2]
        asked = [
            ("POST", "/ping"),
            ("POST", "/delete"),
            ("GET", "/vault/prompt"),
            ("GET", "/vault/task_tools"),
        ]
        asked += [
            ("POST", "/-/mcp"),
            ("GET", "/-/mcp"),
            ("POST", "/-/fork"),
            ("DELETE", f"/-/sessions/{token}"),
        ]
        for method, path in asked:
            assert raw(method, path, {"n": 1}, sid=token).status == 404
        assert raw.call(token, "hint", env="vault").status == 404
        assert raw.post("/ping", sid=sid).status == 200


def test_tokens_share_no_more_with_ids_than_their_server() -> None:
    server = Server([Vault])
    with serving(server) as url:
        raw = Raw(url)
        sids = [open_session(raw, {}) for _ in range(50)]
        tokens = [path_of(raw, sid).rpartition("/")[2] for sid in sids]
        assert len({*tokens, *sids}) == 100
        for sid, token in zip(sids, tokens, strict=True):
            assert sid[:13] == token[:13]  # it leads to the same server
            same = sum(a == b for a, b in zip(sid[13:], token[13:], strict=True))
            assert same < 18  # of 23, of which four are always the same
