"""`ors inspect`: a page of this machine for servers that have none."""

import json
from collections.abc import Iterator

import pytest

from ors import Server
from tests.cli.commands import run, running
from tests.cli.park import Park
from tests.raw import Raw
from tests.serving import serving

WHERE = r"on (http://127\.0\.0\.1:\d+)/-/"


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    """A server that has no inspector of its own, and asks for a key."""
    with serving(Server([Park], api_keys=["s3cret"], inspector=False)) as url:
        yield url


def test_the_page_comes_from_here_and_all_else_from_there(plain: str) -> None:
    with running("inspect", plain, env={"ORS_API_KEY": "s3cret"}) as command:
        raw = Raw(command.line(WHERE)[1])
        assert b"ORS inspector" in raw.get("/-/").body
        about = raw.get("/-/api/about").json()
        assert (about["server"], about["live"]) == (plain, False)
        assert raw.get("/list_environments").json() == ["park"]
        sid = raw.session("park", {"n": 1})
        assert raw.get("/park/prompt", sid=sid).status == 200
        answer = raw.call(sid, "nothing-like-it", env="park")
        assert answer.result()["reason"] == "not_found"
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert raw.post("/delete", sid=sid).status == 200
        assert command.stop().code == 0


def test_foreign_pages_cannot_use_its_key(plain: str) -> None:
    with running("inspect", plain, "--api-key", "s3cret") as command:
        raw = Raw(command.line(WHERE)[1])
        assert raw.get("/list_environments", headers={"Origin": "https://evil.example"}).status == 403
        assert raw.get("/list_environments", headers={"Host": "evil.example"}).status == 403


def test_a_server_that_is_away_is_told(plain: str) -> None:
    with running("inspect", "http://127.0.0.1:1") as command:
        answer = Raw(command.line(WHERE)[1]).get("/-/api/about")
        assert answer.status == 502
        assert "http://127.0.0.1:1 does not answer" in answer.detail


def test_code_is_looked_at_without_a_server(park: str) -> None:
    with running("inspect", park) as command:
        raw = Raw(command.line(WHERE)[1])
        assert raw.get("/-/api/about").json()["live"] is True
        assert json.loads(raw.get("/-/api/environments").body)[0]["name"] == "park"


def test_what_is_no_server_is_told() -> None:
    assert run("inspect", "http://").code == 2
