"""The sandbox of a session, in the inspector."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ors import Server
from ors.client import ORS
from tests.support.browser import Page
from tests.support.environments import Lab
from tests.support.hostile_environment import HOSTILE
from tests.support.live_server import serving
from tests.support.raw_http import Raw
from tests.support.sandbox_environment import Workshop

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def workshop() -> Iterator[str]:
    with serving(Server([Workshop, Lab])) as url:
        yield url


def test_the_sandbox_of_a_session_is_watched(page: Page, workshop: str) -> None:
    with ORS(workshop) as client, client.environment("workshop").session(split="train", index=0) as session:
        session.call_tool("bash", {"command": "mkdir notes; printf hello > notes/one.txt; sleep 600 &"})
        page.open(workshop, f"session/{session.sid}")
        page.find(".sandbox .facts", "of 512.0 MB")
        page.find(".sandbox .processes", "sleep 600")
        page.find(".sandbox .files", "/work/notes/one.txt 5 B")
        session.call_tool("bash", {"command": f"kill %1; touch -- {HOSTILE.replace('/', '')!r}"})
        page.find(".sandbox .files", HOSTILE.replace("/", ""))
        page.until(
            lambda: "sleep 600" not in page.find(".sandbox .processes").text, "the process is still shown"
        )
    page.find(".summary .state", "deleted")
    page.gone(".sandbox")


def test_a_sandbox_is_shown_to_those_who_may_see_its_session() -> None:
    with serving(Server([Workshop], api_keys=["one=secret-1", "two=secret-2"])) as url:
        raw = Raw(url)
        ours: dict[str, Any] = {"headers": {"X-API-Key": "secret-1"}}
        sid = raw.session("workshop", **ours)
        raw.get("/workshop/prompt", sid=sid, **ours)
        path = f"/-/api/sandbox/{sid}"
        found = raw.get(path, **ours).json()
        assert [place["path"] for place in found["places"]] == ["/work", "/tmp", "/home/agent", "/dev/shm"]
        assert raw.get(path).status == 401
        assert raw.get(path, headers={"X-API-Key": "secret-2"}).status == 404
        assert raw.get("/-/api/sandbox/nobody", **ours).status == 404
        assert raw("POST", path, **ours).status == 405
    with serving(Server([Workshop], inspector=False)) as url:
        raw = Raw(url)
        assert raw.get(f"/-/api/sandbox/{raw.session('workshop')}").status == 404


def test_a_sandbox_that_does_not_answer_is_left_alone(workshop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ors.server.admin.pages.LOOK_SECONDS", 0.1)
    raw = Raw(workshop)
    sid = raw.session("workshop")
    raw.call(sid, "bash", {"command": "echo first"}, env="workshop")
    agents = [pid for pid in children(os.getpid()) if b"-S\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    for pid in agents:
        os.kill(pid, signal.SIGSTOP)
    assert raw.get(f"/-/api/sandbox/{sid}").json() is None
    for pid in agents:
        os.kill(pid, signal.SIGCONT)
    assert "still here" in str(raw.call(sid, "bash", {"command": "echo still here"}, env="workshop").result())


def children(pid: int) -> list[int]:
    """All processes below one."""
    own = [
        int(each)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for each in (task / "children").read_text().split()
    ]
    return own + [each for child in own for each in children(child)]


def test_a_session_without_a_sandbox_has_none(workshop: str) -> None:
    raw = Raw(workshop)
    assert raw.get(f"/-/api/sandbox/{raw.session()}").json() is None
