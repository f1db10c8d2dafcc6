"""The commands, with an environment whose episode ends with the agent's last message."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ors import Server
from tests.support import SUPPORT
from tests.support.commands import run
from tests.support.live_server import serving
from tests.support.terminal_environment import Essay, Garden

pytestmark = pytest.mark.long

LASTWORD = SUPPORT / "terminal_environment.py"
ESSAY = f"{LASTWORD}:Essay"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Server([Essay, Garden])) as address:
        yield address


def test_it_is_listed_with_the_tools(url: str) -> None:
    shown = run("tools", ESSAY).out
    assert "grade  answer: string  Grades the answer." in shown
    assert "grade takes the agent's last message. Agents do not see it as a tool." in shown
    (one,) = run("tools", ESSAY, "--json").json
    assert (one["name"], one["terminal"], one["input_schema"]["required"]) == ("grade", True, ["answer"])
    assert run("tools", ESSAY, "grade").json == one
    listed = run("tools", url, "--env", "garden", "--index", "0", "--json").json
    assert [(tool["name"], tool.get("terminal")) for tool in listed] == [("dig", None), ("grade", True)]


def test_environments_are_listed_with_it(url: str) -> None:
    assert "dig, grade (terminal)" in run("list", url).out
    essay, garden = run("list", url, "--json").json
    assert (essay["tools"], essay["terminal_tool"]) == ([], "grade")
    assert (garden["tools"], garden["terminal_tool"]) == (["dig"], "grade")


def test_it_is_called(url: str) -> None:
    done = run("call", ESSAY, "grade", "answer=elppa", "--json")
    assert (done.json["reward"], done.json["finished"]) == (1.0, True)
    assert run("call", url, "grade", "--env", "garden", "--json").json["finished"] is True
    wrong = run("call", ESSAY, "grade")
    assert wrong.code == 2
    assert "grade needs answer" in wrong.err


def test_an_episode_is_played_to_its_last_message(tmp_path: Path) -> None:
    done = run("play", ESSAY, "--index", "1", cwd=tmp_path, stdin="grade ananab\n")
    assert done.code == 0
    assert "grade(answer: string)  Grades the answer.\n" in done.out
    assert "Text that does not begin with a tool's name is your last message." in done.out
    assert "you said ananab" in done.out
    assert done.out.endswith("The episode is finished. Total reward: 1, in 1 call.\n")


def test_plain_text_is_the_last_message(tmp_path: Path) -> None:
    done = run("play", ESSAY, "--json", cwd=tmp_path, stdin="/promt\nel  ppa 3\n")
    (call,) = done.json["calls"]
    assert (call["tool"], call["input"]) == ("grade", {"answer": "el  ppa 3"})
    assert "There is no tool '/promt'" in done.err
    assert "Text that does not begin with a tool's name is your last message." in done.err
    garden = run("play", f"{LASTWORD}:Garden", "--json", cwd=tmp_path, stdin="dig\nI am done.\n")
    assert [(call["tool"], call["input"]) for call in garden.json["calls"]] == [("dig", {}), ("grade", {})]


def test_its_grading_is_tested() -> None:
    done = run("test", ESSAY, "--limit", "2", "--episodes", "20", "--json")
    assert done.code == 0, done.out
    (report,) = done.json
    assert (report["findings"], report["figures"]["tools"], report["figures"]["gold earns"]) == ([], 1, 1.0)
    paid = run("test", f"{LASTWORD}:Generous", "--limit", "2", "--episodes", "20", "--json")
    assert "do-nothing" in [finding["id"] for finding in paid.json[0]["findings"]]


def test_it_is_measured() -> None:
    done = run("bench", ESSAY, "--seconds", "0.5", "--json")
    assert done.json["calls"] > 0
