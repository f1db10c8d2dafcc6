"""`ors runs`: list, show, compare, export."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from ors.rollouts import EpisodeRecord, Truncated, UserMessage
from ors.rollouts.records import RunInfo, RunWriter
from ors.types import TextBlock
from tests.support.commands import run
from tests.support.episode_records import LOST, episode

pytestmark = pytest.mark.long


def written(folder: Path, records: Iterable[EpisodeRecord], config: dict[str, object] | None = None) -> Path:
    with RunWriter.create(folder, RunInfo.gathered(config or {})) as writer:
        for record in records:
            writer.append(record)
    return folder


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """Two splits of two tasks, two episodes each; one is lost and one truncated."""
    return written(
        tmp_path / "first",
        [
            episode(0, 1.0, split="train"),
            episode(0, 0.0, sample=1, split="train"),
            episode(1, 1.0, split="train"),
            episode(1, 1.0, sample=1, split="train"),
            episode(2, 0.0),
            episode(2, None, sample=1, outcome=LOST),
            episode(3, 0.0),
            episode(3, None, sample=1, outcome=Truncated("turns")),
        ],
        {"model": "openai:gpt-5"},
    )


@pytest.fixture
def second(tmp_path: Path) -> Path:
    return written(
        tmp_path / "second",
        [episode(0, 0.0, split="train"), *(episode(n, 1.0) for n in (2, 3)), episode(9, 1.0)],
    )


def test_runs_below_a_folder_are_listed(first: Path, second: Path, tmp_path: Path) -> None:
    rows = run("runs", "list", cwd=tmp_path).out.splitlines()
    assert [row.split()[0] for row in rows] == ["RUN", "second", "first"]  # the newest first
    assert re.search(r"0\.4286 \[0\.\d+, 0\.\d+\] +1 +1$", rows[2])  # mean, without a reward, failed
    assert [each["run"] for each in run("runs", "list", str(first), "--json", cwd=tmp_path).json] == ["first"]


def test_a_run_that_cannot_be_read_does_not_hide_the_others(first: Path, tmp_path: Path) -> None:
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "run.json").write_text('{"schema": 2}')
    done = run("runs", "list", "--json", cwd=tmp_path)
    assert [each["run"] for each in done.json] == ["first"]
    assert "newer/run.json: schema 2 is newer than this version of ors can read: update ors" in done.err


def test_a_folder_without_runs_is_an_empty_list(tmp_path: Path) -> None:
    assert run("runs", "list", "--json", cwd=tmp_path).json == []
    assert run("runs", "list", cwd=tmp_path).out.startswith("RUN ")


def test_a_run_is_shown_with_its_statistics(first: Path) -> None:
    out = run("runs", "show", str(first)).out
    assert "8 episodes of 4 tasks" in out
    assert "outcomes: scored 6, failed 1, truncated 1" in out
    assert "truncated by: turns 1" in out
    assert "mean reward: 0.4286 [0." in out
    assert "8 episodes of 4 tasks, 1 without a reward (counted as 0), 1 failed (left out)" in out
    rows = [row.split() for row in out.splitlines()]
    assert ["infrastructure", "call", "1", "SessionLost:", "the", "session", "has", "ended"] in rows
    assert ["2", "0.6667", "0.3333", "3"] in rows  # pass@2 and pass^2 of the three tasks with two episodes
    assert ["of", "each", "model", "request", "0.5", "0.5", "8"] in rows
    (train,) = [row for row in rows if row[:1] == ["train"]]
    assert train[1:5] == ["2", "4", "4", "0.75"]
    assert "TASK" not in [row[0] for row in rows if row]


def test_tasks_and_episodes_are_listed_when_asked_for(first: Path) -> None:
    rows = [row.split() for row in run("runs", "show", str(first), "--tasks", "--episodes").out.splitlines()]
    assert ["train/0", "2", "2", "0.5", "0"] in rows
    assert ["test/2", "2", "1", "0", "1"] in rows
    (lost,) = [row for row in rows if row[:1] == ["5"]]
    assert lost[2:] == ["test/2", "1", "failed:", "infrastructure,", "call", "-", "1", "1", "0.75"]


def test_a_run_is_shown_as_json(first: Path) -> None:
    found = run("runs", "show", str(first), "--json", "--tasks", "--episodes").json
    assert (found["episodes"], found["rewarded"], found["unrewarded"]) == (8, 6, 1)
    assert found["reward"]["mean"] == pytest.approx(3 / 7)
    assert found["scoring"] == {"unscored_reward": 0, "truncated_reward": 0, "failed_reward": {}}
    assert [each["score"] for each in found["by_episode"]] == [1, 0, 1, 1, 0, None, 0, 0]
    assert found["config"] == {"model": "openai:gpt-5"}
    failure = {"who": "infrastructure", "stage": "call", "error": "SessionLost", "count": 1}
    assert found["failures"] == [{**failure, "message": "the session has ended"}]
    assert [row["name"] for row in found["by_task"]] == ["test/2", "test/3", "train/0", "train/1"]
    assert found["by_episode"][5]["outcome"]["who"] == "infrastructure"
    assert (found["by_episode"][5]["split"], found["by_episode"][5]["index"]) == ("test", 2)


def test_one_episode_is_shown_by_number_or_id(first: Path) -> None:
    out = run("runs", "show", str(first), "2").out
    assert "of adder train/1, sample 0\n" in out
    assert "user: What is 1 + 1?" in out
    assert 'agent calls submit {"answer": 2}\n\nsubmit: Correct.\nreward: 1\nfinished\n' in out
    by_id = run("runs", "show", str(first), f"{1:016x}{0:016x}", "--json").json
    assert (by_id["index"], by_id["sample"], by_id["tools"][0]["name"]) == (1, 0, "submit")
    assert "error: SessionLost: the session has ended" in run("runs", "show", str(first), "5").out


def test_an_episode_is_shown_with_the_attempts_before_it(tmp_path: Path) -> None:
    lost = replace(episode(0, None, outcome=replace(LOST, may_have_run=True)), id="before")
    folder = written(tmp_path / "retried", [replace(episode(0, 1.0), attempts=2, earlier=(lost,))])
    out = run("runs", "show", str(folder), "0").out
    assert "earlier outcome: failed: infrastructure, call" in out
    assert "earlier error: SessionLost: the session has ended (a call may have run)" in out
    assert "\noutcome: scored" in out


def test_what_a_record_says_cannot_change_the_terminal(tmp_path: Path) -> None:
    evil = episode(
        0, messages=(UserMessage([TextBlock(text="\x1b[2J\x07" + "x" * 5000)]),), agent="\x1b[2J\x07"
    )
    folder = written(tmp_path / "run", [evil])
    for words in (["list", str(tmp_path)], ["show", str(folder), "0"], ["show", str(folder), "--episodes"]):
        out = run("runs", *words).out
        assert "\x1b" not in out
        assert "\x07" not in out
        assert len(out) < 3000


def test_broken_lines_are_named_and_skipped(first: Path) -> None:
    with (first / "episodes.jsonl").open("a") as file:
        file.write("{}\n" * 12)
    done = run("runs", "show", str(first), "--json")
    assert done.json["episodes"] == 8
    assert len(done.json["broken_lines"]) == 12
    (line,) = done.err.splitlines()
    assert line.startswith("Warning: skipped 12 broken lines; the first: ")
    assert line.endswith("first: episodes.jsonl:9: schema None is not 1")


def test_two_runs_are_compared_task_by_task(first: Path, second: Path) -> None:
    out = run("runs", "compare", str(first), str(second)).out
    assert "3 tasks in both runs; 1 only in the first, 1 only in the second" in out
    assert "difference: 0.5 [-1, 1] (95% interval), from 0.1667 to 0.6667" in out
    assert "significance: p = 0.5, not significant at 0.05 (exact permutation test, paired by task)" in out
    rows = [row.split() for row in out.splitlines()]
    assert ["test/2", "0", "1", "+1", "1,", "1"] in rows
    assert ["test/3", "0", "1", "+1", "2,", "1"] in rows  # one of the two was truncated
    assert ["train/0", "0.5", "0", "-0.5", "2,", "1"] in rows
    found = run("runs", "compare", str(first), str(second), "--json").json
    assert (found["p"], found["test"], found["significant"]) == (0.5, "permutation", False)
    assert [change["difference"] for change in found["changes"]] == [-0.5, 1.0, 1.0]


def test_runs_without_common_tasks_are_a_fault(first: Path, tmp_path: Path) -> None:
    other = written(tmp_path / "other", [episode(77)])
    done = run("runs", "compare", str(first), str(other))
    assert (done.code, done.out) == (1, "")
    assert "share no task that was played to its end" in done.err


def test_a_run_is_checked_and_a_finding_is_a_fault_if_that_is_asked_for(first: Path, second: Path) -> None:
    done = run("runs", "check", str(first))
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("1 of 8 episodes (12.5%) failed: infrastructure, ")
    assert "ors eval --resume" in lines[1]
    assert lines[2] == f"  episodes: {episode(2, None, sample=1, outcome=LOST).id[:8]}"
    assert lines[-1] == "3 findings"
    assert run("runs", "check", str(first), "--strict").code == 1
    found = run("runs", "check", str(first), "--strict", "--json")
    assert found.code == 1
    kinds = [each["kind"] for each in found.json["findings"]]
    assert kinds == [f"failed infrastructure {LOST.stage} {LOST.error}", "hit_limit", "masked"]
    clean = run("runs", "check", str(second), "--strict")
    assert (clean.code, clean.out) == (0, "No findings.\n")


def test_messages_are_exported_by_reward(first: Path, tmp_path: Path) -> None:
    out = tmp_path / "sft.jsonl"
    done = run(
        *("runs", "export", str(first), "--format", "openai", "--out", str(out), "--min-reward", "1"),
        cwd=tmp_path,
    )
    assert done.out == "Exported 3 episodes to sft.jsonl; left out 5\n"
    examples = [json.loads(line) for line in out.read_text().splitlines()]
    assert [example["messages"][0]["content"] for example in examples] == [
        "What is 0 + 0?",
        "What is 1 + 1?",
        "What is 1 + 1?",
    ]


def test_trajectories_are_exported_with_all_outcomes(first: Path, tmp_path: Path) -> None:
    words = ["runs", "export", str(first), "--format", "atif", "--out", str(tmp_path / "out"), "--json"]
    assert run(*words).json == {"out": str(tmp_path / "out"), "episodes": 8, "left_out": 0, "skipped": []}
    assert len(list((tmp_path / "out").glob("*.json"))) == 8
    assert run(*words, "--outcome", "failed", "--outcome", "truncated").json["episodes"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "."], ". is not a run: it has no run.json"),
        (["show", "nowhere"], "nowhere is not a run"),
        (["show", "first", "99"], "first has no episode '99' among its 8"),
        (["show", "first", "0000"], "8 episodes of first have an id that begins with '0000'"),
        (["list", "nowhere"], "Folder 'nowhere' does not exist"),
        (["compare", "first", "nowhere"], "nowhere is not a run"),
        (["export", "first", "--format", "csv", "--out", "x"], "'csv' is not one of 'openai', 'atif'"),
        (["export", "first", "--format", "openai"], "Missing option '--out'"),
        (["export", "first", "--format", "openai", "--out", "x", "--min-reward", "a"], "not a valid float"),
        (["nope"], "No such command 'nope'"),
    ],
)
def test_wrong_use_is_one_line(words: list[str], said: str, first: Path) -> None:
    done = run("runs", *words, cwd=first.parent)
    assert (done.code, done.out) == (2, "")
    assert said in done.err.splitlines()[-1]


def test_an_export_that_cannot_be_written_is_a_fault(first: Path) -> None:
    done = run("runs", "export", "first", "--format", "openai", "--out", "first/run.json/x", cwd=first.parent)
    assert done.code == 1
    assert "Error: " in done.err.splitlines()[-1]


def test_settings_reach_the_commands_of_a_group(first: Path) -> None:
    file = first.parent / "pyproject.toml"
    file.write_text("[tool.ors.runs.show]\ntasks = true\n")
    assert "TASK " in run("runs", "show", "first", cwd=first.parent).out
    assert (
        run("runs", "show", "first", cwd=first.parent, env={"ORS_RUNS_SHOW_JSON": "1"}).json["episodes"] == 8
    )
    file.write_text("[tool.ors.runs.show]\ntusks = true\n")
    assert "sets runs.show.tusks in [tool.ors]" in run("runs", "show", "first", cwd=first.parent).err
    file.write_text("[tool.ors.runs]\nshaw = 1\n")
    assert "sets runs.shaw in [tool.ors]" in run("runs", "show", "first", cwd=first.parent).err
