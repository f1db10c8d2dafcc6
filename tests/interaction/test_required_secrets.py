"""Secrets that an environment requires: refused without, asked for, and never shown."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import ors.testing
from ors import Server
from ors.client import ORS
from ors.errors import BadRequest, InvalidEnvironment
from tests.support import SUPPORT
from tests.support.commands import Terminal, run
from tests.support.environments import Lab
from tests.support.keyed_environment import Keyed
from tests.support.live_server import serving
from tests.support.raw_http import Raw

TARGET = f"{SUPPORT / 'keyed_environment.py'}:Keyed"
VALUE = "k-1234567"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Server([Keyed, Lab], inspector=True)) as address:
        yield address


@pytest.mark.parametrize("sent", [{}, {"judge_key": ""}, {"JUDGE_KEY": VALUE}])
def test_a_session_without_a_required_secret_is_refused_by_name(url: str, sent: dict[str, str]) -> None:
    raw = Raw(url)
    sid = raw.post("/create_session").json()["sid"]
    body = {"env_name": "keyed", "split": "train", "index": 0, "secrets": sent}
    answer = raw.post("/create", body, sid=sid)
    assert (answer.status, answer.json()["detail"]) == (400, "'keyed' needs the secret 'judge_key'")
    body["secrets"] = {"judge_key": VALUE}
    assert raw.post("/create", body, sid=sid).status == 200  # the id was not used up


def test_tools_tell_what_is_required_and_other_environments_require_nothing(url: str) -> None:
    raw = Raw(url)
    assert raw.get("/keyed/tools").json()["required_secrets"] == ["judge_key"]
    assert "required_secrets" not in raw.get("/lab/tools").json()
    with ORS(url) as client:
        assert client.environment("keyed").required_secrets() == ["judge_key"]
        assert client.environment("lab").required_secrets() == []


async def test_sessions_for_tests_need_it_too() -> None:
    with pytest.raises(BadRequest, match="needs the secret 'judge_key'"):
        async with ors.testing.session(Keyed, {}):
            pass
    async with ors.testing.session(Keyed, {}, secrets={"judge_key": VALUE}) as session:
        assert (await session.call_tool("submit", {})).finished


@pytest.mark.parametrize("given", ["judge_key", [1], [""]])
def test_a_list_that_is_none_is_refused_when_the_server_is_built(given: object) -> None:
    wrong = type("Wrong", (Keyed,), {"required_secrets": given})
    with pytest.raises(InvalidEnvironment, match=r"Wrong.required_secrets must be a list of names"):
        Server([wrong])


# ── In commands ──────────────────────────────────────────────────────────────────────────────────


def test_a_command_says_how_to_give_it_and_takes_it(url: str, tmp_path: Path) -> None:
    done = run("prompt", url, "--env", "keyed", cwd=tmp_path)
    assert done.code == 2
    assert "keyed needs the secret judge_key: pass --secret judge_key=VALUE" in done.err
    done = run("prompt", url, "--env", "keyed", "--secret", f"judge_key={VALUE}", cwd=tmp_path)
    assert "A key of 9 letters" in done.out


def test_variables_are_read_for_a_target_and_never_for_a_server(url: str, tmp_path: Path) -> None:
    variables = {"JUDGE_KEY": VALUE}
    assert "A key of 9 letters" in run("prompt", TARGET, cwd=tmp_path, env=variables).out
    done = run("prompt", url, "--env", "keyed", cwd=tmp_path, env=variables)
    assert done.code == 2


def test_a_player_is_asked_without_echo(tmp_path: Path) -> None:
    game = Terminal("play", TARGET, cwd=tmp_path)
    game.until("judge_key (secret): ")
    game.type(f"{VALUE}\n")
    shown = game.until("A key of 9 letters")
    game.until("> ")
    game.type("submit\n")
    code, rest = game.end()
    assert code == 0
    assert VALUE not in shown + rest


def test_the_test_command_says_what_is_missing(tmp_path: Path) -> None:
    done = run("test", TARGET, "--episodes", "20", cwd=tmp_path)
    assert done.code == 2
    assert "Keyed needs the secret judge_key" in done.err
