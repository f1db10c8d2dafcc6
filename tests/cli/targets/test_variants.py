"""`--set` and `--as`: parameters and variants of a TARGET, in every command that takes one."""

import json
import re
from pathlib import Path

import pytest

from ors.client import ORS
from ors.rollouts.records import read_run
from tests.support import parameters
from tests.support.commands import refused, run, running
from tests.support.parameters import SUMS

FILE = str(Path(parameters.__file__))
LEVEL = f"{FILE}:Level"


def test_values_are_json_where_that_fits_and_text_where_it_does_not() -> None:
    settings = ("--set", "difficulty=5", "--set", 'words=["a"]', "--set", "label=5", "--set", "level=2")
    assert run("prompt", SUMS, *settings).out == "Config(difficulty=5, words=['a'], label='5', level=2)\n"


def test_the_file_and_a_variable_set_parameters_and_the_command_line_goes_first(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.ors]\nset = ["difficulty=5", "level=null"]\n')
    shown = run("prompt", SUMS, cwd=tmp_path).out
    assert shown == "Config(difficulty=5, words=[], label='none', level=None)\n"
    assert "difficulty=6" in run("prompt", SUMS, cwd=tmp_path, env={"ORS_PROMPT_SET": "difficulty=6"}).out
    assert "difficulty=7" in run("prompt", SUMS, "--set", "difficulty=7", cwd=tmp_path).out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["prompt", SUMS, "--set", "difficulty=x"],
            "--set: Sums cannot be configured with difficulty='x': I",
        ),
        (["play", SUMS, "--set", "difficulty=100"], "difficulty=100: Input should be less than or equal to"),
        (
            ["test", SUMS, "--set", "dificulty=1"],
            "--set: Sums has no parameter 'dificulty'; its parameters: d",
        ),
        (["list", FILE, "--set", "other=1"], "--set: Sums has no parameter 'other'"),
        (["tools", SUMS, "--set", "hard.difficulty=1"], "there is no environment 'hard', only sums"),
        (["tasks", SUMS, "--set", "difficulty"], "--set difficulty: give NAME=VALUE"),
        (["eval", "http://127.0.0.1:1", "--model", "random", "--set", "a=1"], "--set needs a TARGET"),
        (["serve", "--as", "hard"], "--as hard: give NAME:TARGET"),
        (["serve", "--as", f"hard:{FILE}"], "has several environments: name one, as in"),
        (["serve"], "Give a TARGET, or --as NAME:TARGET"),
    ],
)
def test_a_wrong_value_or_name_is_one_clear_line(words: list[str], message: str) -> None:
    done = refused(*words)
    assert (done.code, len(done.err.splitlines())) == (2, 1), done.err
    assert message in done.err


@pytest.mark.long
def test_variants_are_served_side_by_side_by_workers_too() -> None:
    easy, hard = ("--as", f"easy:{SUMS}"), ("--as", f"hard:{SUMS}", "--set", "hard.difficulty=9")
    words = (*easy, *hard, "--as", f"top:{LEVEL}", "--set", "top.level=a", "--set", "difficulty=2")
    serving = running("serve", SUMS, *words, "--port", "0", "--workers", "2")
    with serving as server, ORS(server.url()) as client:
        assert client.list_environments() == ["sums", "easy", "hard", "top"]
        counts = [client.environment(name).num_tasks("train") for name in ("sums", "easy", "hard")]
        assert counts == [2, 2, 9]


def test_parameters_are_listed_with_their_values() -> None:
    line = run("list", SUMS, "--config", "--set", "difficulty=7").out.splitlines()[1]
    assert re.split("  +", line) == ["sums", "difficulty: integer = 3", "7", "How many tasks there are."]
    found = run("list", FILE, "--config", "--json", "--set", "level.level=a", "--set", "sums.level=2").json
    assert {name: each["values"]["level"] for name, each in found.items()} == {"sums": 2, "level": "a"}
    assert found["sums"]["schema"]["properties"]["difficulty"]["maximum"] == 99


@pytest.mark.long
def test_a_run_is_not_resumed_with_other_parameters(tmp_path: Path) -> None:
    words = ("eval", "--model", "random", "--set", "difficulty=4", "--out", "run", "--json")
    assert run(*words, SUMS, cwd=tmp_path).code == 0
    before = json.loads((tmp_path / "run/run.json").read_text())
    assert before["environments"]["sums"]["parameters"]["difficulty"] == 4
    refusal = "The environment's parameters have changed since this run began, and results of both would be"
    done = run("eval", "--resume", "run", "--set", "difficulty=5", cwd=tmp_path)
    assert (done.code, refusal in done.err) == (2, True), done.err
    with running("serve", SUMS, "--port", "0", cwd=tmp_path) as server:  # the default is another value
        url = server.url()
        done = run("eval", "--resume", "run", url, cwd=tmp_path)
        assert (
            run(*words[:3], "--out", "at-url", "--json", url, cwd=tmp_path).json["config"]["settings"] == []
        )
        again = run("eval", "--resume", "at-url", "--set", "difficulty=5", cwd=tmp_path)
    assert (done.code, refusal in done.err) == (2, True), done.err
    assert (again.code, "--set needs a TARGET" in again.err) == (2, True), again.err
    (tmp_path / "pyproject.toml").write_text('[tool.ors]\nset = ["difficulty=6"]\n')
    assert run("eval", "--resume", "run", cwd=tmp_path).code == 0  # it has options of its own
    assert json.loads((tmp_path / "run/run.json").read_text()) == before
    assert run("eval", "--resume", "run", "--set", "difficulty=5", "--allow-changed", cwd=tmp_path).code == 0
    assert len(read_run(tmp_path / "run").entries) == 5


@pytest.mark.long
def test_a_run_keeps_its_parameters_and_is_replayed_and_graded_with_them(tmp_path: Path) -> None:
    done = run(
        *("eval", SUMS, "--model", "gold", "--set", "difficulty=4", "--out", "gold", "--fail-under", "1"),
        cwd=tmp_path,
    )
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "gold/run.json").read_text())["config"]["settings"] == ["difficulty=4"]
    assert run("replay", "gold", cwd=tmp_path).out == "4 episodes played, 0 with differences\n"
    assert run("regrade", "gold", "--out", "graded", cwd=tmp_path).code == 0
    assert [entry.reward for entry in read_run(tmp_path / "graded").entries] == [4.0] * 4


@pytest.mark.long
def test_recorded_sessions_of_a_variant_are_replayed_with_its_parameters(tmp_path: Path) -> None:
    words = (SUMS, "--as", f"hard:{SUMS}", "--set", "hard.difficulty=9", "--record", str(tmp_path / "run"))
    looks_secret = ("--set", f"hard.label={'0123456789abcdef' * 2}")
    with running("serve", *words, *looks_secret, "--port", "0") as server:
        with ORS(server.url()) as client, client.environment("hard").session(split="train", index=8) as one:
            one.get_prompt()
            assert one.call_tool("submit", {"answer": 17}).reward == 1.0
        server.stop()
    assert "1 episode played, 0 with differences" in run("replay", str(tmp_path / "run")).out
