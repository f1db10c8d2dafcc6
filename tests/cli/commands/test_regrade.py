"""`ors regrade`: new rewards for a recorded run, by `grade` or by playing its calls again."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ors.rollouts import Failed, TaskRef
from ors.rollouts.records import Run, RunWriter, read_run
from tests.support.commands import run, running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

QUIZ = """
from ors import Environment, TextBlock, ToolOutput, tool


class Quiz(Environment):
    tasks = {"train": [{"n": n, "answer": 2 * n} for n in range(6)]}
    private_fields = ["answer"]

    def get_prompt(self):
        return f"Double {self.task_spec['n']}."

    @classmethod
    def solve(cls, task_spec):
        return [("look", {}), ("submit", {"answer": 2 * task_spec["n"]})]

    @tool
    def look(self) -> ToolOutput:
        return ToolOutput(blocks=[TextBlock(text="nothing")])

    @tool
    def submit(self, answer: int) -> ToolOutput:
        right = answer == self.task_spec["answer"]
        return ToolOutput(blocks=[TextBlock(text="Done.")], reward=float(right), finished=True)
"""
BROKEN = QUIZ.replace("float(right)", 'float(right and self.task_spec["n"] < 3)')
"""Its grader is right for the first three tasks only."""


def graded(body: str) -> str:
    return f"{BROKEN}\n{body}"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Two episodes of each task by the gold agent, with the broken grader."""
    (tmp_path / "quiz.py").write_text(BROKEN)
    done = run("eval", "quiz.py", "--model", "gold", "--samples", "2", "--out", "first", cwd=tmp_path)
    assert done.code == 0, done.err
    return tmp_path


def rewards(folder: Path) -> dict[tuple[int | None, int], float | None]:
    return {(each.task.index, each.sample): each.reward for each in read_run(folder).entries}


def regrade(folder: Path, code: str, *more: str) -> Any:
    (folder / "quiz.py").write_text(code)
    return run("regrade", "first", "quiz.py", "--out", "second", *more, cwd=folder)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file()}


def test_the_calls_are_played_again_with_the_fixed_grader(recorded: Path) -> None:
    before = bytes_of(recorded / "first")
    done = regrade(recorded, QUIZ)
    assert done.code == 0, done.err
    assert "12 of 12 episodes graded (quiz by replay)" in done.out
    assert "6 changed; mean reward of these episodes: 0.5 before, 1 now" in done.out
    assert set(rewards(recorded / "second").values()) == {1.0}
    assert bytes_of(recorded / "first") == before
    compared = run("runs", "compare", "first", "second", "--json", cwd=recorded).json
    assert [change["difference"] for change in compared["changes"]] == [0, 0, 0, 1, 1, 1]
    told = read_run(recorded / "second").info
    code = told.environments["quiz"]
    assert code.hash not in (None, read_run(recorded / "first").info.environments["quiz"].hash)
    about = told.config["regraded"]
    assert (about["source"], about["how"], about["changed"]) == ("first", {"quiz": "replay"}, 6)
    assert (about["before"], about["after"]) == (0.5, 1.0)
    assert about["grader"]["environments"]["quiz"]["hash"] == code.hash


def test_episodes_with_other_results_are_told_apart_and_not_scored(recorded: Path) -> None:
    changed = QUIZ.replace('text="nothing"', 'text="nothing" if self.task_spec["n"] else "something"')
    done = regrade(recorded, changed, "--json")
    assert done.code == 0, done.err
    assert done.json["graded"] == 10
    assert {each["task"] for each in done.json["not_graded"]} == {"train/0"}
    assert {each["error"] for each in done.json["not_graded"]} == {"ResultsDiffer"}
    second = read_run(recorded / "second")
    (lost,) = {each.outcome for each in second.entries if each.task.index == 0}
    assert isinstance(lost, Failed)
    assert (lost.who, lost.error) == ("environment", "ResultsDiffer")
    assert "call 1, look: result was" in lost.message
    assert [each.score for each in second.entries if each.task.index == 0] == [None, None]


@pytest.mark.parametrize(
    ("grade", "reward", "components"),
    [
        ("def grade(self, transcript): return self.task_spec['answer']", 10.0, {}),
        (
            "async def grade(self, transcript): return {'n': self.task_spec['n'], 'one': 1}",
            6.0,
            {"n": 5, "one": 1},
        ),
        (
            "def grade(self, transcript): return ToolOutput(blocks=[], rewards={'x': 2.0}, reward=3.0)",
            3.0,
            {"x": 2.0},
        ),
        ("def grade(self, transcript): return transcript.calls[-1][0].input['answer'] / 2", 5.0, {}),
        ("def grade(self, transcript): return len(transcript.messages)", 5.0, {}),
        ("def grade(self, transcript, bonus=1): return transcript.task.index + bonus", 6.0, {}),
    ],
)
def test_a_grade_gets_task_and_conversation_and_returns_a_reward(
    recorded: Path, grade: str, reward: float, components: dict[str, float]
) -> None:
    done = regrade(recorded, graded(f"    {grade}"))
    assert done.code == 0, done.err
    assert "(quiz by grade)" in done.out
    second = read_run(recorded / "second")
    last = next(each for each in second.episodes() if each.task.index == 5)
    assert (last.reward, last.components, last.rewards) == (reward, components, (None, reward))
    assert last.messages[-1].components == components  # type: ignore[union-attr]


def test_an_error_in_grade_is_a_failure_of_the_environment_and_never_a_score(recorded: Path) -> None:
    body = """
    def grade(self, transcript):
        match self.task_spec["n"]:
            case 0: raise RuntimeError("the judge is down: " + self.secrets["key"])
            case 1: return float("nan")
            case 2: return "1.0"
            case 3: return {"a": float("inf")}
            case 4: return None
        return 0.5
"""
    done = regrade(recorded, graded(body), "--secret", "key=sesame-and-more")
    assert done.code == 0, done.err
    assert "4 of 12 episodes graded" in done.out
    second = read_run(recorded / "second")
    outcomes = {each.task.index: each.outcome for each in second.entries}
    for index, error in enumerate(("RuntimeError", "TypeError", "TypeError", "ValueError")):
        failed = outcomes[index]
        assert isinstance(failed, Failed)
        assert (failed.who, failed.stage, failed.error) == ("environment", "closing", error)
    assert outcomes[4].type == "unscored"
    assert {each.reward for each in second.entries if each.task.index != 5} == {None}
    assert "sesame-and-more" not in str(bytes_of(recorded / "second")) + done.out + done.err


def test_the_new_run_has_the_range_that_the_new_grader_declares(recorded: Path) -> None:
    body = """
    reward_range = (0, 10)

    def grade(self, transcript):
        return 2 * self.task_spec["n"]
"""
    assert regrade(recorded, graded(body)).code == 0
    assert {each.range for each in read_run(recorded / "second").entries} == {(0.0, 10.0)}


def test_an_episode_whose_task_is_not_recorded_is_not_graded(recorded: Path) -> None:
    info = read_run(recorded / "first").info
    with RunWriter.create(recorded / "unknown", info) as writer:
        for each in read_run(recorded / "first").episodes():
            task = TaskRef("quiz") if each.task.index == 0 else each.task
            writer.append(replace(each, task=task))
    (recorded / "quiz.py").write_text(graded("    def grade(self, transcript): return 1.0"))
    done = run("regrade", "unknown", "quiz.py", "--out", "second", "--json", cwd=recorded)
    assert (done.json["graded"], {each["error"] for each in done.json["not_graded"]}) == (10, {"TaskUnknown"})


def test_failed_episodes_stay_failed_and_a_tool_called_grade_is_no_grader(tmp_path: Path) -> None:
    code = BROKEN.replace('text="nothing")])', 'text=str(1 / self.task_spec["n"]))])')
    (tmp_path / "quiz.py").write_text(code)
    run("eval", "quiz.py", "--model", "gold", "--max-failed", "1", "--out", "first", cwd=tmp_path)
    tool = "    @tool\n    def grade(self, transcript: str) -> ToolOutput:\n        raise AssertionError\n"
    done = regrade(tmp_path, f"{code}\n{tool}".replace(' and self.task_spec["n"] < 3', ""))
    assert done.code == 0, done.err
    assert "5 of 6 episodes graded (quiz by replay)" in done.out
    first, second = read_run(tmp_path / "first"), read_run(tmp_path / "second")
    assert outcome(second, 0) == outcome(first, 0)
    assert isinstance(outcome(first, 0), Failed)


def outcome(run: Run, index: int) -> object:
    return next(each.outcome for each in run.entries if each.task.index == index)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_regrade_leaves_no_run(recorded: Path, number: signal.Signals) -> None:
    body = """
    def grade(self, transcript):
        import pathlib, threading
        if transcript.task.index == 1 and not pathlib.Path("quick").exists():
            pathlib.Path("waiting").touch()
            threading.Event().wait()
        return 0.0
"""
    (recorded / "quiz.py").write_text(graded(body))
    with running("regrade", "first", "quiz.py", "--out", "second", cwd=recorded) as process:
        wait_until((recorded / "waiting").exists)
        process.process.send_signal(number)
        process.process.wait(timeout=40)
    (recorded / "quick").touch()
    assert not (recorded / "second").exists()
    assert [each["run"] for each in run("runs", "list", "--json", cwd=recorded).json] == ["first"]
    done = run("regrade", "first", "quiz.py", "--out", "second", cwd=recorded)
    assert done.code == 0, done.err
    assert len(read_run(recorded / "second").entries) == 12


def test_a_folder_with_something_in_it_is_not_written_to(recorded: Path) -> None:
    done = run("regrade", "first", "quiz.py", "--out", "first", cwd=recorded)
    assert (done.code, "is not empty" in done.err) == (2, True)
    assert sorted(each.name for each in recorded.iterdir() if each.name.startswith(".")) == []


def test_a_regraded_run_is_not_played_into(recorded: Path) -> None:
    assert regrade(recorded, QUIZ).code == 0
    done = run("eval", "--resume", "second", cwd=recorded)
    assert done.code == 2
    assert "not a run of `ors eval`" in done.err


def test_without_a_target_what_the_run_was_recorded_with_grades_it(recorded: Path) -> None:
    (recorded / "quiz.py").write_text(graded("    def grade(self, transcript): return 0.25"))
    done = run("regrade", "first", "--out", "second", "--json", cwd=recorded)
    assert (done.json["changed"], done.json["after"]) == (12, 0.25)
    assert json.loads((recorded / "second" / "run.json").read_text())["config"]["regraded"]["changed"] == 12
