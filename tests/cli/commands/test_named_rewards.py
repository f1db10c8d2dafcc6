"""Named rewards in what the commands print."""

import json
from pathlib import Path

import pytest

from tests.support.commands import run

pytestmark = pytest.mark.long

ESSAY = "tests.support.essay_environment:Essay"
ROOT = Path(__file__).parents[3]


def test_an_evaluation_and_its_run_show_each_component_with_its_interval(tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("first", "second")]
    report = run("eval", ESSAY, "--model", "gold", "--out", folders[0], cwd=ROOT)
    assert report.code == 0, report.err
    assert "COMPONENT" in report.out
    assert "tidy       0.75 [0.75, 0.75]" in report.out
    assert "correct    1 [0." in report.out  # a share of four tasks
    shown = run("runs", "show", folders[0], "--json", "--episodes").json
    assert {name: each["mean"] for name, each in shown["components"].items()} == {
        "tidy": 0.75,
        "correct": 1.0,
    }
    assert shown["by_episode"][0]["components"] == {"tidy": 0.75, "correct": 1.0}
    episode = run("runs", "show", folders[0], "0").out
    assert "reward: 1.75 (tidy 0.75, correct 1)" in episode
    assert "reward: 0.25 (tidy 0.25)" in episode
    assert run("runs", "show", folders[0], "0", "--json").json["components"] == {"tidy": 0.75, "correct": 1.0}

    run("eval", ESSAY, "--model", "gold", "--reward", "last", "--out", folders[1], cwd=ROOT)
    compared = run("runs", "compare", *folders).out
    assert "COMPONENT  FIRST  SECOND  DIFFERENCE" in compared
    assert "tidy       0.75   0.5     -0.25 [-0.25, -0.25]" in compared
    found = run("runs", "compare", *folders, "--json").json["components"]
    assert found["tidy"]["difference"]["mean"] == -0.25
    assert found["correct"]["difference"]["mean"] == 0.0
    assert found["tidy"]["changes"][0]["difference"] == -0.25


def test_a_game_by_hand_names_the_rewards_of_each_step_and_of_all() -> None:
    moves = "draft 0.25\nsubmit correct=1 tidy=0.5\n"
    played = run("play", ESSAY, stdin=moves, cwd=ROOT).out
    assert 'metadata: {"words": 3}\nreward: 0.25 (tidy 0.25)' in played
    assert "reward: 1.5 (correct 1, tidy 0.5)" in played
    assert "reward_components" not in played
    assert "Total reward: 1.75 (tidy 0.75, correct 1), in 2 calls." in played
    report = run("play", ESSAY, "--json", stdin=moves, cwd=ROOT).json
    assert report["components"] == {"tidy": 0.75, "correct": 1.0}


def test_a_run_keeps_the_declared_range(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = run("eval", f"{ESSAY.partition(':')[0]}:Graded", "--model", "gold", "--out", str(folder), cwd=ROOT)
    assert done.code == 0, done.err
    sentences = {"correct": "Whether the answer is right.", "tidy": "How tidy the text is."}
    assert run("runs", "show", str(folder), "--json").json["rewards"] == {
        "graded": {"range": [0.0, 3.0], "components": sentences}
    }
    again = run("eval", "--resume", str(folder), cwd=ROOT)
    assert again.code == 0, again.err
    assert json.loads((folder / "run.json").read_text())["rewards"]["graded"]["range"] == [0.0, 3.0]
