"""Statuses, headers and paths, probed from outside."""

import socket

import pytest

from ors import Limits, Server, __version__
from ors.errors import InvalidEnvironment
from tests.requirements import proves
from tests.support.environments import Lab, Other
from tests.support.live_server import serving
from tests.support.raw_http import Raw

BAD_BODIES = [
    (b"", "empty"),
    (b"{", "JSON"),
    (b"\xff\xfe", "JSON"),
    (b"[]", "object"),
    (b"null", "object"),
    (b'"text"', "object"),
    (b"{}", "split"),
    (b'{"split": 5}', "split"),
    (b'{"split": null}', "split"),
    (b'{"split": NaN}', "JSON"),
    (b'{"split": ["hunter2"]}', "split"),
]


@proves("http.error-format", "http.detail-names-field")
@pytest.mark.parametrize(("body", "named"), BAD_BODIES)
def test_a_bad_body_is_400_and_names_what_is_wrong(raw: Raw, body: bytes, named: str) -> None:
    answer = raw.post("/lab/tasks", body)
    assert answer.status == 400
    assert named in answer.detail
    assert "hunter2" not in answer.detail


@proves("http.detail-names-field")
def test_a_bad_call_body_is_400_and_echoes_no_value(raw: Raw) -> None:
    sid = raw.session()
    for body, named in [
        ({"input": {}}, "name"),
        ({"name": "echo"}, "input"),
        ({"name": "echo", "input": ["hunter2"]}, "input"),
        ({"name": "echo", "input": "hunter2"}, "input"),
        ({"name": 7, "input": {}}, "name"),
        ({"name": "echo", "input": {}, "task_id": 7}, "task_id"),
    ]:
        answer = raw.post("/lab/call", body, sid=sid)
        assert answer.status == 400, body
        assert named in answer.detail
        assert "hunter2" not in answer.detail


@proves("http.error-format")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"task_spec": {}, "split": "train", "index": 0},
        {"split": "train"},
        {"index": 0},
        {"task_spec": [1]},
        {"split": "train", "index": "0"},
        {"split": "train", "index": True},
        {"split": "train", "index": 1.5},
        {"task_spec": {}, "secrets": {"key": 5}},
        {"task_spec": {}, "env_name": 5},
    ],
)
def test_a_bad_create_is_400_and_creates_nothing(raw: Raw, body: object) -> None:
    assert raw.post("/create", body, sid="bad-create").status == 400
    assert raw.post("/ping", sid="bad-create").status == 404


@proves("http.unknown-keys")
def test_unknown_body_keys_are_ignored(raw: Raw) -> None:
    assert raw.post("/lab/tasks", {"split": "train", "extra": 1}).status == 200
    sid = raw.session()
    body = {"name": "nothing", "input": {}, "toolset_name": "x"}
    assert raw.post("/lab/call", body, sid=sid).result()["ok"] is True


@proves("http.content-type")
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "nonsense"])
def test_a_json_body_is_parsed_whatever_its_content_type(raw: Raw, kind: str) -> None:
    answer = raw.post("/lab/num_tasks", {"split": "train"}, headers={"Content-Type": kind})
    assert answer.json() == {"num_tasks": 5}


@proves("http.body-limit")
def test_a_body_over_the_limit_is_413() -> None:
    with serving(Server([Lab], limits=Limits(body_bytes=1000))) as url:
        raw = Raw(url)
        assert raw.post("/lab/tasks", b'{"split": "' + b"x" * 2000 + b'"}').status == 413
        assert raw.post("/lab/tasks", {"split": "train"}).status == 200


@proves("http.body-limit")
def test_a_chunked_body_over_the_limit_is_413() -> None:
    with serving(Server([Lab], limits=Limits(body_bytes=1000))) as url:
        parts = Raw(url)
        with socket.create_connection((parts.host, parts.port), 10) as connection:
            connection.sendall(
                b"POST /lab/tasks HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            connection.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 413")


@proves("http.deep-json")
@pytest.mark.parametrize("nesting", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 5000 + b"]" * 5000])
def test_deeply_nested_json_is_400(raw: Raw, nesting: bytes) -> None:
    assert raw.post("/lab/tasks", nesting).status == 400
    assert raw.post("/lab/tasks", b'{"\\u0061":' + nesting).status == 400
    assert raw.get("/health").status == 200


@proves("sid.before-body")
def test_the_session_id_is_checked_before_the_body(raw: Raw) -> None:
    for path in ("/create", "/delete", "/delete_session", "/ping", "/lab/call"):
        for headers in ({}, {"X-Session-ID": ""}, {"X-Session-ID": "   "}):
            answer = raw.post(path, b"{", headers=headers)
            assert answer.status == 400
            assert "X-Session-ID" in answer.detail
    for path in ("/lab/prompt", "/lab/task_tools"):
        assert "X-Session-ID" in raw.get(path).detail


@proves("sid.any")
@pytest.mark.parametrize("sid", ["abc-123", "x" * 256, "a b/c?d=é", "0"])
def test_any_printable_session_id_will_do(raw: Raw, sid: str) -> None:
    assert raw.post("/create", {"env_name": "lab", "task_spec": {}}, sid=sid).json() == {"sid": sid}
    assert raw.post("/ping", sid=sid).status == 200
    assert raw.post("/delete", sid=sid).json() == {"sid": sid}


@proves("sid.blank")
@pytest.mark.parametrize("sid", ["x" * 257, "a\x01b", "a\tb"])
def test_other_session_ids_are_400(raw: Raw, sid: str) -> None:
    assert raw.post("/create", {"task_spec": {}}, sid=sid).status == 400


@proves("http.environment-case")
def test_environment_names_are_case_insensitive_and_canonical_in_lower_case(raw: Raw) -> None:
    assert raw.get("/list_environments").json() == ["lab", "other"]
    assert raw.post("/LAB/tasks", {"split": "train"}).json()["env_name"] == "lab"
    sid = raw.session(env="LaB")
    assert raw.call(sid, "nothing", env="Lab").result()["ok"] is True


@proves("http.reserved-names")
@pytest.mark.parametrize(
    "name", ["health", "Create", "list_environments", "call", "-", "", "a/b", "a b", "ä?"]
)
def test_a_name_that_no_path_can_have_is_refused_when_the_server_is_built(name: str) -> None:
    renamed = type("Renamed", (Lab,), {"name": classmethod(lambda cls: name)})
    with pytest.raises(InvalidEnvironment, match="Renamed"):
        Server([renamed])


@proves("http.unknown-environment-at-once")
def test_an_unknown_environment_is_404_where_there_are_several(raw: Raw) -> None:
    for method, path in [("GET", "/nope/tools"), ("POST", "/nope/tasks"), ("GET", "/nope"), ("GET", "/")]:
        answer = raw(method, path)
        assert answer.status == 404, path
    assert "lab" in raw.get("/nope/tools").detail
    assert raw.post("/create", {"env_name": "nope", "task_spec": {}}, sid="x-unknown").status == 404
    assert raw.post("/ping", sid="x-unknown").status == 404


@proves("http.single-redirect-308")
@pytest.mark.parametrize("path", ["/tools", "/nope/tools", "/a/b/c", "/call", "/", "/ümlaut"])
def test_with_one_environment_unrecognised_paths_are_redirected_below_it(alone: Raw, path: str) -> None:
    quoted = path.replace("ü", "%C3%BC")
    answer = alone.get(quoted + "?q=1&r=%20")
    assert answer.status == 308
    assert answer.headers["location"] == f"/lab{quoted}?q=1&r=%20"


@proves("http.single-redirect-308")
def test_a_redirect_leads_no_further(alone: Raw) -> None:
    assert alone.get("/lab/nope/tools").status == 404
    assert alone.get("//elsewhere.example/tools").headers["location"].startswith("/lab/")


@proves("http.bare-discovery")
def test_bare_discovery_paths_lead_to_the_first_environment(raw: Raw) -> None:
    for method, path in [("GET", "/tools"), ("GET", "/splits"), ("POST", "/tasks"), ("POST", "/num_tasks")]:
        answer = raw(method, path + "?a=b")
        assert (answer.status, answer.headers["location"]) == (308, f"/lab{path}?a=b")
    for path in ("/task", "/task_range"):
        assert raw.post(path).status == 308


@proves("http.bare-session")
def test_bare_session_paths_are_served_for_the_sessions_own_environment(raw: Raw) -> None:
    sid = raw.session("other", {"kind": "a"})
    assert raw.get("/prompt", sid=sid).json()[0]["text"] == "other"
    assert [t["name"] for t in raw.get("/task_tools", sid=sid).json()["tools"]] == ["always", "pick"]
    answer = raw.post("/call", {"name": "always", "input": {}}, sid=sid)
    assert answer.result()["output"]["blocks"][0]["text"] == "always"


@proves("http.head-health")
def test_head_health_is_200_without_a_body(raw: Raw) -> None:
    answer = raw("HEAD", "/health")
    assert (answer.status, answer.body) == (200, b"")
    assert raw.get("/health").json() == {"status": "ok"}


@proves("http.wrong-method")
@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/create", "POST"),
        ("GET", "/lab/call", "POST"),
        ("DELETE", "/delete", "POST"),
        ("POST", "/health", "GET, HEAD"),
        ("PUT", "/lab/prompt", "GET, HEAD"),
        ("OPTIONS", "/lab/call", "POST"),
    ],
)
def test_a_wrong_method_is_405_with_allow(raw: Raw, method: str, path: str, allow: str) -> None:
    answer = raw(method, path)
    assert (answer.status, answer.headers["allow"]) == (405, allow)
    assert allow in answer.detail


@proves("http.version")
def test_the_version_is_served_and_told_with_every_answer(raw: Raw) -> None:
    assert raw.get("/version").json() == {"version": __version__}
    for path in ("/health", "/nope/tools", "/tools"):
        assert raw.get(path).headers["ors-version"] == __version__


@proves("http.own-paths")
def test_what_is_ours_is_out_of_reach_of_environments(alone: Raw) -> None:
    assert alone.get("/-/nope").status == 404


def test_paths_may_end_with_a_slash(raw: Raw) -> None:
    assert raw.get("/health/").status == 200
    assert raw.get("/lab/tools/").status == 200


def test_a_server_needs_environments() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Server([])
    with pytest.raises(TypeError, match=r"Server\(\[Lab\]\)"):
        Server(Lab)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="int"):
        Server([int])  # type: ignore[list-item]
    with pytest.raises(InvalidEnvironment, match="two environments"):
        Server([Lab, Lab])
    assert Server([Lab, Other]).app is not None


def test_an_unknown_way_to_return_errors_is_refused() -> None:
    with pytest.raises(ValueError, match="return_errors"):
        Server([Lab], return_errors="all")  # type: ignore[arg-type]


@proves("http.rollout-log")
@pytest.mark.parametrize("body", [{"events": [{"eventType": []}]}, b"", b"{", b"[" * 100_000])
def test_the_rollout_log_of_openreward_is_an_empty_200_whatever_it_says(raw: Raw, body: object) -> None:
    answer = raw.post("/v1/rollouts", body)
    assert (answer.status, answer.body) == (200, b"")


@proves("http.rollout-log")
def test_the_rollout_log_needs_a_key_where_the_server_has_keys() -> None:
    with serving(Server([Lab], api_keys=["s3cret"])) as url:
        assert Raw(url).post("/v1/rollouts", {"events": []}).status == 401
        headers = {"x-api-key": "s3cret"}
        assert Raw(url).post("/v1/rollouts", {"events": []}, headers=headers).status == 200
