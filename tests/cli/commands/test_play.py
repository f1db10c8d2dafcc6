"""`ors play`, from a pipe and in a terminal."""

import re
from pathlib import Path

import pytest

from tests.support.commands import Terminal, run
from tests.support.unending_environment import PROCESSES

pytestmark = pytest.mark.long


def test_an_episode_is_played_from_a_pipe(park: str, tmp_path: Path) -> None:
    lines = [
        "echo hello  you count=2 tags='[\"a b\"]'",
        "echo count=2",
        "echo a=b --all",
        "echo text='hello you'",
        "refuse",
        "fail",
        "nope",
        "",
        '{"x"',
        "submit 3",
        "submit 3",
    ]
    done = run("play", park, "--index", "2", cwd=tmp_path, stdin="\n".join(lines))
    assert done.code == 0
    shown = done.out
    assert "Task 2" in shown
    assert "submit(answer: integer)  End the episode." in shown
    assert "\n['hello  you', 2, 0.5, False, 'red', ['a b'], {}, 0]" in shown
    assert "echo needs text" in shown
    assert "\n['a=b --all', 1" in shown
    assert "> echo text='hello you'\n['hello you', 1" in shown
    assert "Refused: not today" in shown
    assert "Failed: Tool execution failed: it broke" in shown
    assert "There is no tool 'nope'" in shown
    assert shown.endswith("finished\n\nThe episode is finished. Total reward: 1.75, in 6 calls.\n")


def test_values_and_objects_may_have_several_lines(park: str, tmp_path: Path) -> None:
    lines = [
        'echo text="""',
        "a 'quoted' word",
        '  and "more\\n" here""" count=2',
        "echo {",
        '  "text": "json"',
        "}",
        'echo {"text": oops',
        'echo text="""never closed',
    ]
    done = run("play", park, "--json", cwd=tmp_path, stdin="\n".join(lines))
    first, second = done.json["calls"]
    assert first["input"] == {"text": "a 'quoted' word\n  and \"more\\n\" here", "count": 2}
    assert second["input"] == {"text": "json"}
    assert "Not valid JSON" in done.err
    assert "triple quotes are not closed" in done.err


def test_a_player_may_leave(url: str, tmp_path: Path) -> None:
    done = run("play", url, cwd=tmp_path, stdin='echo {"text": "json"}\n/quit\nsubmit 3\n')
    assert done.out.endswith("The episode is not finished. Total reward: 0.25, in 1 call.\n")


@pytest.mark.parametrize("word", ["quit", "exit", "/exit"])
def test_plain_words_leave_and_help(word: str, url: str, tmp_path: Path) -> None:
    done = run("play", url, cwd=tmp_path, stdin=f"help\n{word}\nsubmit 3\n")
    assert done.out.count("Other commands: help") == done.out.count("submit(answer: integer)") == 2
    assert done.out.endswith("The episode is not finished. Total reward: 0, in 0 calls.\n")


def test_the_report_is_json_alone_on_standard_output(url: str, tmp_path: Path) -> None:
    done = run("play", url, "--split", "train", "--json", cwd=tmp_path, stdin="refuse\nsubmit answer=4\n")
    assert done.json["total"] == 0.0
    assert done.json["finished"] is True
    assert done.json["calls"][0] == {"tool": "refuse", "input": {}, "error": "not today"}
    assert done.json["calls"][1]["output"]["blocks"][0]["text"] == "False"
    assert "Task 0" in done.err


def test_an_episode_is_played_in_a_terminal(park: str, tmp_path: Path) -> None:
    game = Terminal("play", park, cwd=tmp_path)
    assert "Task 0" in game.until("quit (or Ctrl-D).")
    game.until("> ")
    game.type("sub\t3\n")
    game.until("True\n")
    code, rest = game.end()
    assert code == 0
    assert "reward: 1\nfinished" in rest
    assert "Total reward: 1, in 1 call." in rest


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_for_terminals_that_want_them(
    url: str, variables: dict[str, str], coloured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tests.support.commands.ESCAPES", re.compile(r"\x1b\[\?[0-9]*[A-Za-z]")
    )  # none of colours
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    game = Terminal("play", url, cwd=tmp_path)
    game.until("> ")
    game.type("submit 3\n")
    _, rest = game.end()
    assert ("\x1b[32mreward: 1\x1b[0m" in rest) == coloured
    assert ("\x1b[" in rest) == coloured


def test_the_end_of_input_ends_a_game_in_a_terminal(url: str, tmp_path: Path) -> None:
    game = Terminal("play", url, cwd=tmp_path)
    game.until("> ")
    game.type("\x04")
    code, rest = game.end()
    assert code == 0
    assert "The episode is not finished" in rest


@pytest.mark.long
def test_an_episode_is_torn_down_when_the_terminal_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = tmp_path / "processes"
    monkeypatch.setenv(PROCESSES, str(noted))
    game = Terminal("play", "tests.support.unending_environment")
    game.until("> ")
    processes = noted.read_text().split()
    assert len(processes) == 2  # the command, and that of the episode
    assert game.hang_up() in (0, 130)  # the end of the input may come first
    assert not any(Path(f"/proc/{pid}").exists() for pid in processes)
