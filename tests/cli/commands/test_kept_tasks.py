"""What `ors eval` keeps of an episode: its task, and a record that can be read."""

import json
from pathlib import Path

import pytest

from ors import Server
from ors.inspector.shown_runs import ShownRuns
from ors.rollouts import Failed, TaskRef
from ors.rollouts.records import read_run
from tests.support.commands import run
from tests.support.live_server import serving
from tests.support.recorded_runs import tear

pytestmark = pytest.mark.long

LIBRARY = '''\
from ors import Environment, TextBlock, ToolOutput, tool

class Library(Environment):
    private_fields = ["answer"]
    @classmethod
    def list_splits(cls):
        return ["train"]
    @classmethod
    def list_tasks(cls, split):
        books = ["", "", "x" * 9_000, "x" * 3_000_000]
        return [{"number": n, "book": book, "answer": f"sesame {n}"} for n, book in enumerate(books)]
    @classmethod
    def solve(cls, task_spec):
        return [("submit", {"answer": task_spec["answer"].upper()})]
    def setup(self):
        if self.task_spec["number"] == 1:
            raise RuntimeError("closed today")
    def get_prompt(self):
        number = self.task_spec["number"]
        return [TextBlock(text=f"Book {number}?" + "y" * 70_000 * (number == 0))]
    @tool
    def submit(self, answer: str) -> ToolOutput:
        """Submit."""
        right = answer == self.task_spec["answer"].upper()
        return ToolOutput(blocks=[TextBlock(text="done")], reward=float(right), finished=True)
'''
DEEP = '''\
from ors.client import ToolInvocation
from ors.rollouts import AgentMessage

class Deep:
    """Makes a call that no run can hold, in the episode of the first task."""
    async def reply(self, conversation, tools):
        given = {}
        if conversation.task.index == 0:
            for _ in range(300):
                given = {"a": given}
        return AgentMessage(calls=(ToolInvocation("submit", {"answer": given}, "c1"),))

deep = Deep()
'''


@pytest.fixture
def library(tmp_path: Path) -> Path:
    (tmp_path / "library.py").write_text(LIBRARY)
    return tmp_path


def evaluated(folder: Path, *words: str) -> Path:
    given = ["--model", "gold", "--out", "run", "--max-failed", "1", *words]
    done = run("eval", "library.py", *given, cwd=folder)
    assert done.code == 0, done.err
    return folder / "run"


def test_the_task_of_an_episode_is_kept_without_its_private_fields_and_shown(library: Path) -> None:
    folder = evaluated(library, "--samples", "2")
    found = read_run(folder)
    assert not [path for path in folder.rglob("*") if path.is_file() and b"sesame" in path.read_bytes()]
    tasks = {record.task.index: record.task for record in found.episodes()}
    assert tasks[0] == TaskRef("library", "train", 0, {"number": 0, "book": ""})
    assert tasks[1].spec == {"number": 1, "book": ""}  # its setup failed
    assert tasks[2].spec == {"number": 2, "book": "x" * 9000}
    sizes = [path.stat().st_size for path in (folder / "blobs").iterdir()]
    assert len([size for size in sizes if 9_000 < size < 10_000]) == 1  # both samples share it
    assert all(len(line) < 20_000 for line in (folder / "episodes.jsonl").read_bytes().splitlines())
    which = {entry.task.index: entry for entry in found.entries}
    shown = run("runs", "show", str(folder), which[2].id)
    assert 'task: {"number": 2, "book": "xxx' in shown.out
    assert len(shown.out) < 5_000
    assert json.loads(run("runs", "show", str(folder), which[2].id, "--json").out)["task"] == tasks[2].spec
    page = ShownRuns(folder).get("run")
    assert [page.line(which[n])["task"] for n in (0, 1, 2)] == [tasks[n].spec for n in (0, 1, 2)]
    assert list(page.line(which[3])["task"]) == ["too large to show"]
    assert run("runs", "export", str(folder), "--format", "atif", "--out", "atif", cwd=library).code == 0
    trajectory = json.loads((library / "atif" / f"{which[2].id}.json").read_text())
    assert trajectory["extra"]["task"]["spec"] == tasks[2].spec


def test_an_episode_whose_task_is_kept_is_played_again_by_its_index(library: Path) -> None:
    folder = evaluated(library)
    done = run("replay", str(folder), cwd=library)
    assert done.code == 0, done
    assert done.out.startswith("3 episodes played, 0 with differences\n1 not played: "), done  # setup failed
    again = run("eval", "--resume", str(folder), "--retry", "model", "--max-failed", "1", cwd=library)
    assert (again.code, again.err) == (0, "")
    assert len((folder / "episodes.jsonl").read_bytes().splitlines()) == 4


def test_a_key_that_sees_private_fields_keeps_them(library: Path) -> None:
    namespace: dict[str, type] = {}
    exec(LIBRARY, namespace)
    with serving(Server([namespace["Library"]], api_keys=["all=sesame private"])) as url:
        given = ["--model", "noop", "--tasks", "0", "--api-key", "sesame", "--out", "run"]
        assert run("eval", url, *given, cwd=library).code in (0, 3)
    (record,) = read_run(library / "run").episodes()
    assert record.task.spec == {"number": 0, "book": "", "answer": "sesame 0"}


def test_a_resumed_run_plays_what_cannot_be_read_and_says_so_in_one_line(library: Path) -> None:
    folder = evaluated(library, "--tasks", "0,2,3", "--samples", "2", "--concurrency", "1")
    file = folder / "episodes.jsonl"
    before = [record.task for record in read_run(folder).episodes()]
    tear(folder, 2)  # a body
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:4], lines[4][:300] + b"\n", lines[5]]))  # a line
    (blob,) = (each for each in (folder / "blobs").iterdir() if 70_000 < each.stat().st_size < 80_000)
    blob.write_bytes(b"")  # of both samples of task 0
    done = run("eval", "--resume", "run", cwd=library)
    assert done.code == 0, done.err
    (warning,) = done.err.splitlines()
    assert warning.startswith("Warning: playing again 4 unreadable episodes; the first: episodes.jsonl:5")
    found = read_run(folder)
    assert sorted(each.task.index or 0 for each in found.episodes()) == sorted(
        each.index or 0 for each in before
    )
    assert run("runs", "show", str(folder), "--json").json["episodes"] == 6
    assert run("eval", "--resume", "run", cwd=library).code == 0
    assert len(read_run(folder).broken) == 1  # the torn line stays, and what it lacks was played once
    assert len(file.read_bytes().splitlines()) == 10


def test_exports_and_replays_go_on_without_what_cannot_be_read(library: Path) -> None:
    folder = evaluated(library, "--tasks", "0,2,3")
    tear(folder, 1)
    done = run("runs", "export", "run", "--format", "openai", "--out", "sft.jsonl", cwd=library)
    assert done.code == 0
    assert done.out == "Exported 2 episodes to sft.jsonl; left out 0\n"
    (warning,) = done.err.splitlines()
    assert warning.startswith("Warning: skipped 1 episode; the first: Episode ")
    assert len((library / "sft.jsonl").read_text().splitlines()) == 2
    done = run("replay", "run", cwd=library)
    assert (done.code, done.out) == (0, "2 episodes played, 0 with differences\n"), done
    assert done.err == warning + "\n"
    assert run("replay", "run", "--json", cwd=library).json["unreadable"] == 1
    tear(folder, 0)
    tear(folder, 2)
    done = run("runs", "export", "run", "--format", "openai", "--out", "none.jsonl", cwd=library)
    assert done.code == 1
    assert "No episode was exported" in done.err


def test_an_episode_that_no_run_can_hold_fails_alone(library: Path) -> None:
    (library / "agents.py").write_text(DEEP)
    given = ["--model", "agents:deep", "--tasks", "0,2,3", "--out", "run", "--max-failed", "1"]
    done = run("eval", "library.py", *given, cwd=library)
    assert done.code == 0, done.err
    outcomes = {record.task.index: record.outcome for record in read_run(library / "run").episodes()}
    failed = outcomes.pop(0)
    assert isinstance(failed, Failed)
    assert (failed.who, failed.stage) == ("infrastructure", "closing")
    assert failed.message.startswith("It cannot be recorded: ")
    assert not [each for each in outcomes.values() if isinstance(each, Failed)]
