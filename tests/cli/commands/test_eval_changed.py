"""`ors eval --resume` after the environment, or its place, has changed."""

import json
from pathlib import Path
from typing import Any

import pytest

from ors import Server
from ors.rollouts.records import read_run
from tests.cli.commands.test_eval_outcomes import AGENTS, RIDDLES, evaluated
from tests.rollouts.records.test_info import git
from tests.support.commands import run
from tests.support.eval_environments import Quiz
from tests.support.live_server import serving

pytestmark = pytest.mark.long
REFUSED = "The environment's code has changed since this run began, and results of both would be mixed"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A work tree with a run of which one episode failed."""
    (tmp_path / "riddles.py").write_text(RIDDLES + "import helper\n")
    (tmp_path / "agents.py").write_text(AGENTS)
    (tmp_path / "helper.py").write_text("")
    (tmp_path / "broken").write_text("1")
    assert evaluated(tmp_path, "Wrong").code == 0
    (tmp_path / "broken").unlink()
    return tmp_path


def kept(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / "Wrong" / "run.json").read_text())
    return found


@pytest.mark.parametrize("file", ["riddles.py", "helper.py"])
def test_a_run_is_not_resumed_with_other_code_unless_that_is_asked_for(place: Path, file: str) -> None:
    before = kept(place)
    original = (place / file).read_text()
    (place / file).write_text(original + "# changed\n")
    done = run("eval", "--resume", "Wrong", cwd=place)
    assert done.code == 2
    assert done.err == f"Error: {REFUSED}: start a new run, or continue anyway with --allow-changed\n"
    assert kept(place) == before
    assert len(read_run(place / "Wrong").entries) == 6
    done = run("eval", "--resume", "Wrong", "--allow-changed", "--json", cwd=place)
    assert (done.code, done.json["outcomes"]) == (0, {"scored": 6}), done.err
    after = kept(place)
    assert after["environments"] != before["environments"]
    assert [each["environments"] for each in after["earlier"]] == [before["environments"]]
    assert run("eval", "--resume", "Wrong", cwd=place).code == 0
    assert kept(place) == after


def test_the_same_code_is_resumed_wherever_git_stands(place: Path) -> None:
    git(place, "init", "-b", "main")
    git(place, "add", "riddles.py", "agents.py", "helper.py")
    git(place, "commit", "-m", "x")
    done = run("eval", "--resume", "Wrong", cwd=place)
    assert (done.code, done.err) == (0, "")
    assert kept(place)["git"]["commit"]


def test_data_that_git_tracks_is_part_of_the_environment(place: Path) -> None:
    (place / "tasks.jsonl").write_text("{}\n")
    git(place, "init", "-b", "main")
    git(place, "add", ".")
    git(place, "commit", "-m", "x")
    assert evaluated(place, "Talks").code == 0
    assert run("eval", "--resume", "Talks", cwd=place).code == 0
    (place / "tasks.jsonl").write_text("{}\n{}\n")
    done = run("eval", "--resume", "Talks", cwd=place)
    assert done.code == 2
    assert REFUSED in done.err


def test_a_run_that_goes_on_at_another_place_says_so(tmp_path: Path) -> None:
    with serving(Server([Quiz])) as first:
        assert run("eval", first, "--model", "noop", "--tasks", "0", "--out", "Wrong", cwd=tmp_path).code == 0
    with serving(Server([Quiz])) as second:
        assert run("eval", second, "--resume", "Wrong", cwd=tmp_path).code == 0
    found = kept(tmp_path)
    assert found["config"]["target"] == second
    assert [each["target"] for each in found["earlier"]] == [first]
