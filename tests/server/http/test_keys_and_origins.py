"""Keys, hosts and origins; what each may see."""

import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from ors import ApiKey, Server
from ors.client import ORS
from ors.errors import AuthenticationError
from tests.requirements import proves
from tests.support.environments import Lab
from tests.support.live_server import serving
from tests.support.raw_http import Raw

KEYS: list[ApiKey | str] = ["one=secret-1", ApiKey("two", "secret-2", private=True)]


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


class Guarded(Lab):
    private_fields: ClassVar[list[str]] = ["split"]


@pytest.fixture(scope="module")
def keyed() -> Iterator[Raw]:
    with serving(Server([Guarded], api_keys=KEYS)) as url:
        yield Raw(url)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-API-Key": "wrong"},
        {"X-API-Key": ""},
        {"Authorization": "Basic c2VjcmV0LTE="},
        bearer("secret-1x"),
    ],
)
def test_without_a_right_key_everything_is_401(keyed: Raw, headers: dict[str, str]) -> None:
    for method, path in [("GET", "/list_environments"), ("POST", "/create_session"), ("GET", "/-/metrics")]:
        answer = keyed(method, path, headers=headers)
        assert answer.status == 401
        assert "X-API-Key" in answer.detail
        assert "secret" not in answer.detail
    assert keyed("GET", "/nowhere/at/all", headers=headers).status == 401


def test_a_right_key_opens_in_either_form(keyed: Raw) -> None:
    for headers in ({"X-API-Key": "secret-1"}, bearer("secret-2"), {"Authorization": "bearer secret-1"}):
        assert keyed.get("/list_environments", headers=headers).json() == ["guarded"]


def test_health_needs_no_key(keyed: Raw) -> None:
    for path in ("/health", "/-/health/live", "/-/health/ready"):
        assert keyed.get(path).status == 200


def test_a_session_belongs_to_its_key(keyed: Raw) -> None:
    mine, theirs = {"X-API-Key": "secret-1"}, bearer("secret-2")
    sid = keyed.session("guarded", headers=mine)
    for answer in (
        keyed.post("/ping", sid=sid, headers=theirs),
        keyed.get("/guarded/prompt", sid=sid, headers=theirs),
        keyed.call(sid, "nothing", env="guarded", headers=theirs),
        keyed.post("/delete", sid=sid, headers=theirs),
    ):
        assert answer.status == 404
    assert keyed.get("/-/sessions", headers=theirs).json()["total"] == 0
    assert keyed.get("/-/sessions", headers=mine).json()["sessions"][0]["sid"] == sid
    assert keyed.post("/create", {"task_spec": {}}, sid=sid, headers=theirs).status == 400
    assert keyed.post("/ping", sid=sid, headers=mine).status == 200


@proves("session.key")
def test_a_session_belongs_to_its_key_after_its_end_too(keyed: Raw) -> None:
    mine, theirs = {"X-API-Key": "secret-1"}, bearer("secret-2")
    sid = keyed.session("guarded", headers=mine)
    assert keyed.post("/delete", sid=sid, headers=mine).status == 200
    for headers, gone, deleted in ((mine, 410, 200), (theirs, 404, 404)):
        assert keyed.post("/ping", sid=sid, headers=headers).status == gone
        assert keyed.get("/guarded/prompt", sid=sid, headers=headers).status == gone
        assert keyed.call(sid, "nothing", env="guarded", headers=headers).status == gone
        # The inspector remembers the episode, for its own key.
        assert keyed.get(f"/-/api/calls/{sid}", headers=headers).status == deleted
        assert keyed.post("/delete", sid=sid, headers=headers).status == deleted
        assert keyed("DELETE", f"/-/sessions/{sid}", headers=headers).status == deleted
    unknown = keyed.post("/ping", sid="never-was", headers=theirs)
    assert keyed.post("/ping", sid=sid, headers=theirs).body == unknown.body
    assert keyed.post("/create", {"task_spec": {}}, sid=sid, headers=theirs).status == 200
    assert keyed.post("/ping", sid=sid, headers=mine).status == 404
    assert keyed.post("/delete", sid=sid, headers=theirs).status == 200


def test_private_fields_are_listed_only_for_keys_that_may_see_them(keyed: Raw) -> None:
    blind, seeing = {"X-API-Key": "secret-1"}, bearer("secret-2")
    for path, more in [("tasks", {}), ("task_range", {"stop": 1}), ("task", {"index": 0})]:
        bodies = [
            keyed.post(f"/guarded/{path}", {"split": "train", **more}, headers=headers).json()
            for headers in (blind, seeing)
        ]
        tasks = [body["task"] if path == "task" else body["tasks"][0] for body in bodies]
        assert tasks == [{"n": 0}, {"n": 0, "split": "train"}]
    keyed.post("/create", {"split": "train", "index": 3}, sid="whole", headers=blind)
    assert keyed.get("/guarded/prompt", sid="whole", headers=blind).json()[0]["text"] == "task 3"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_private_fields_may_be_said_by_a_method(asynchronous: bool) -> None:
    def plain(cls: type[Lab]) -> list[str]:
        return ["split"]

    async def waited_for(cls: type[Lab]) -> list[str]:
        return ["split"]

    method = classmethod(waited_for if asynchronous else plain)
    with serving(Server([type("Saying", (Lab,), {"private_fields": method})])) as url:
        assert Raw(url).post("/saying/task", {"split": "train", "index": 1}).json()["task"] == {"n": 1}


def test_private_fields_may_be_any_iterable_of_names() -> None:
    with serving(Server([type("Saying", (Lab,), {"private_fields": iter(["split"])})])) as url:
        assert Raw(url).post("/saying/task", {"split": "train", "index": 1}).json()["task"] == {"n": 1}


def test_a_wrong_key_is_a_reason_for_clients(keyed: Raw) -> None:
    with ORS(keyed.url, "wrong") as client, pytest.raises(AuthenticationError) as caught:
        client.list_environments()
    assert caught.value.reason == "key"


def test_without_keys_nobody_sees_private_fields() -> None:
    with serving(Server([Guarded])) as url:
        assert Raw(url).post("/guarded/task", {"split": "train", "index": 0}).json()["task"] == {"n": 0}


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "192.168.0.1"]
)
def test_on_loopback_a_foreign_host_name_is_refused(raw: Raw, host: str) -> None:
    answer = raw.get("/list_environments", headers={"Host": host})
    assert (answer.status, answer.headers["ors-reason"]) == (403, "host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]:8080", "[::1]"])
def test_names_of_this_machine_are_fine(raw: Raw, host: str) -> None:
    assert raw.get("/health", headers={"Host": host}).status == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "file://"])
def test_a_foreign_page_may_not_call(raw: Raw, origin: str) -> None:
    answer = raw.post("/create_session", headers={"Origin": origin})
    assert (answer.status, answer.headers["ors-reason"]) == (403, "origin")
    assert raw("OPTIONS", "/create_session", headers={"Origin": origin}).status == 403


def test_our_own_page_may_call(raw: Raw) -> None:
    assert raw.post("/create_session", headers={"Origin": raw.url}).status == 200


def test_chosen_origins_may_call_and_are_told_so() -> None:
    page = {"Origin": "https://app.example"}
    with serving(Server([Lab], cors_origins=["https://app.example/"])) as url:
        raw = Raw(url)
        preflight = raw("OPTIONS", "/lab/call", headers=page)
        assert preflight.status == 204
        assert preflight.headers["access-control-allow-origin"] == "https://app.example"
        assert "POST" in preflight.headers["access-control-allow-methods"]
        sid = raw.session(headers=page)
        call = raw.call(sid, "nothing", headers=page)
        assert call.headers["access-control-allow-origin"] == "https://app.example"
        assert call.headers["access-control-expose-headers"] == "*"
        assert raw.get("/health", headers={"Origin": "https://other.example"}).status == 403


LINKS = pytest.mark.parametrize(("path", "protocol"), [("/-/link", "ors-link"), ("/-/mux", "ors-mux/1")])


@LINKS
@pytest.mark.parametrize("method", ["OPTIONS", "POST", "HEAD", "PUT", "DELETE"])
def test_a_link_begins_by_get_alone(method: str, path: str, protocol: str) -> None:
    wish = {"Connection": "Upgrade", "Upgrade": protocol, "Origin": "https://app.example"}
    right = (204,) if method == "OPTIONS" else (401, 404, 405)  # a preflight is only that, as everywhere
    with serving(Server([Lab], api_keys=KEYS, cors_origins=["https://app.example"])) as url:
        for key in ({}, {"X-API-Key": "secret-1"}):
            assert Raw(url)(method, path, headers={**wish, **key}).status in right
        assert Raw(url)(method, "/nowhere", headers=wish).status != 101


@LINKS
def test_a_link_begins_with_a_key_alone(keyed: Raw, path: str, protocol: str) -> None:
    wish = {"Connection": "Upgrade", "Upgrade": protocol}
    assert keyed.get(path, headers=wish).status == 401
    assert keyed.get(path, headers={**wish, "X-API-Key": "wrong"}).status == 401
    connection = keyed.connection()
    connection.request("GET", path, headers={**wish, "X-API-Key": "secret-1"})
    assert connection.getresponse().status == 101
    connection.close()


def test_a_wish_for_a_link_elsewhere_is_passed_over(keyed: Raw) -> None:
    wish = {"Connection": "Upgrade", "Upgrade": "ors-link", "X-API-Key": "secret-1"}
    body = {"split": "train"}
    assert keyed.post("/guarded/num_tasks", body, headers=wish).json() == {"num_tasks": 5}
    assert keyed.get("/list_environments", headers=wish).json() == ["guarded"]


@pytest.mark.parametrize("path", ["/-/api/about", "/-/api/environments", "/-/page/index.html"])
def test_a_slash_changes_nothing_of_the_inspector(path: str) -> None:
    with serving(Server([Lab], api_keys=KEYS, inspector=True)) as url:
        answers = [Raw(url).get(each, headers={"X-API-Key": "secret-1"}) for each in (path, f"{path}/")]
    assert [answer.status for answer in answers] == [200, 200]
    assert answers[0].body == answers[1].body


def test_without_keys_only_loopback_is_served_unless_told() -> None:
    server = Server([Lab])
    with pytest.raises(ValueError, match="insecure"):
        server.runner("0.0.0.0")
    assert server.runner("0.0.0.0", insecure=True)
    assert Server([Lab], api_keys=["x"]).runner("0.0.0.0")


def test_it_serves_tls(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    with serving(Server([Lab]), ssl_certfile=str(cert), ssl_keyfile=str(key)) as url:
        assert url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(cert))
        assert urllib.request.urlopen(f"{url}/health", context=trusted).read() == b'{"status":"ok"}'
