"""`ors play`, from a pipe and in a terminal."""

from pathlib import Path

from tests.support.commands import Terminal, run


def test_an_episode_is_played_from_a_pipe(park: str, tmp_path: Path) -> None:
    lines = [
        "echo hello count=2",
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
    assert "'hello' is not key=value" in shown
    assert "> echo text='hello you'\n['hello you', 1" in shown
    assert "Refused: not today" in shown
    assert "Failed: Tool execution failed: it broke" in shown
    assert "There is no tool 'nope'" in shown
    assert shown.endswith("finished\n\nThe episode is finished. Total reward: 1.25, in 4 calls.\n")


def test_a_player_may_leave(url: str, tmp_path: Path) -> None:
    done = run("play", url, cwd=tmp_path, stdin='echo {"text": "json"}\n/quit\nsubmit 3\n')
    assert done.out.endswith("The episode is not finished. Total reward: 0.25, in 1 call.\n")


def test_the_report_is_json_alone_on_standard_output(url: str, tmp_path: Path) -> None:
    done = run("play", url, "--split", "train", "--json", cwd=tmp_path, stdin="refuse\nsubmit answer=4\n")
    assert done.json["total"] == 0.0
    assert done.json["finished"] is True
    assert done.json["calls"][0] == {"tool": "refuse", "input": {}, "error": "not today"}
    assert done.json["calls"][1]["output"]["blocks"][0]["text"] == "False"
    assert "Task 0" in done.err


def test_an_episode_is_played_in_a_terminal(park: str, tmp_path: Path) -> None:
    game = Terminal("play", park, cwd=tmp_path)
    assert "Task 0" in game.until("/quit (or Ctrl-D).")
    game.until("> ")
    game.type("sub\t3\n")
    game.until("True\n")
    code, rest = game.end()
    assert code == 0
    assert "reward: 1\nfinished" in rest
    assert "Total reward: 1, in 1 call." in rest


def test_the_end_of_input_ends_a_game_in_a_terminal(url: str, tmp_path: Path) -> None:
    game = Terminal("play", url, cwd=tmp_path)
    game.until("> ")
    game.type("\x04")
    code, rest = game.end()
    assert code == 0
    assert "The episode is not finished" in rest
