"""`ors list`, `ors tasks`, `ors tools`."""

from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.commands import Terminal, run

pytestmark = pytest.mark.long


def test_a_url_and_a_target_list_the_same(url: str, park: str) -> None:
    expected = [
        {
            "name": "park",
            "splits": {"train": 50, "odd": 2},
            "tools": ["echo", "fail", "picture", "refuse", "submit"],
        }
    ]
    assert run("list", url, "--json").json == expected
    assert run("list", park, "--json").json == expected


def test_a_list_is_the_same_in_a_pipe_and_on_a_terminal(url: str) -> None:
    plain = run("list", url).out.splitlines()
    assert plain[0].split() == ["ENVIRONMENT", "TASKS", "TOOLS"]
    assert plain[1].split(None, 1)[0] == "park"
    code, shown = Terminal("list", url).end()
    assert code == 0
    assert shown.splitlines()[:2] == plain[:2]


def test_tasks_come_in_pages(url: str) -> None:
    done = run("tasks", url, "--page", "3", "--page-size", "20", "--json").json
    assert done["num_tasks"] == 50
    assert [task["index"] for task in done["tasks"]] == list(range(40, 50))
    assert done["tasks"][0]["task_spec"]["n"] == 40
    shown = run("tasks", url, "--page", "3").out
    assert "Page 3 of 3; train has 50 tasks." in shown
    assert "…" in shown
    late = run("tasks", url, "--page", "4")
    assert late.code == 2
    assert "There is no page 4" in late.err


def test_one_task_is_shown_whole(url: str) -> None:
    assert run("tasks", url, "--index", "7").json == {"n": 7, "text": "long " * 100}
    missing = run("tasks", url, "--index", "50")
    assert missing.code == 2
    assert "the split has 50 tasks" in missing.err


def test_tasks_with_many_keys_are_one_column_and_no_text_steers_the_terminal(url: str) -> None:
    done = run("tasks", url, "--split", "odd").out
    assert done.splitlines()[0].split() == ["INDEX", "TASK"]
    assert "\x1b" not in done


def test_a_split_that_does_not_exist_is_used_wrongly(url: str) -> None:
    done = run("tasks", url, "--split", "nope")
    assert done.code == 2
    assert "'train', 'odd'" in done.err


def test_of_several_environments_one_must_be_chosen(two_url: str) -> None:
    done = run("tasks", two_url)
    assert done.code == 2
    assert "--env: park, other" in done.err
    assert run("tasks", two_url, "--env", "OTHER", "--json").json["environment"] == "other"
    assert "There is no environment 'nope'" in run("tools", two_url, "--env", "nope").err


def test_tools_are_listed_with_their_parameters(url: str) -> None:
    lines = {line.split()[0]: line for line in run("tools", url).out.splitlines()}
    assert "answer: integer" in lines["submit"]
    assert "text: string, count: integer = 1, share: number = 0.5, loud: boolean = false" in lines["echo"]
    assert 'colour: "red"|"blue" = "red", tags: [string]|null = null' in lines["echo"]
    assert "special" not in lines
    assert "special" in run("tools", url, "--index", "0").out


def test_one_tool_is_shown_whole(url: str) -> None:
    assert run("tools", url, "submit").json["input_schema"]["required"] == ["answer"]
    done = run("tools", url, "nope")
    assert done.code == 2
    assert "Tools: echo, fail, picture" in done.err


def test_what_cannot_be_counted_is_explained(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests.support.cli_environments import Park\n"
        "class Lost(Park):\n    @classmethod\n    def list_tasks(cls, split):\n"
        "        raise OSError('no file')\n"
    )
    done = run("list", "env.py", cwd=tmp_path)
    assert done.code == 0
    assert "train ?, odd ?" in done.out
    assert "not counted" in done.err
    assert "no file" in run("tasks", "env.py", cwd=tmp_path).err
