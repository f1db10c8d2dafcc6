"""`ors prompt`, `ors call`."""

import base64
from pathlib import Path

import pytest

from tests.support.cli_environments import PICTURE
from tests.support.commands import run

pytestmark = pytest.mark.long


def test_a_prompt_is_shown_and_its_images_are_saved(url: str, tmp_path: Path) -> None:
    for count in (1, 2):
        done = run("prompt", url, "--index", "4", "--images", ".", cwd=tmp_path)
        assert done.out.splitlines() == ["Task 4, \\x1b[31mand []", f"[image saved to prompt-{count}.png]"]
        assert (tmp_path / f"prompt-{count}.png").read_bytes() == base64.b64decode(PICTURE)


def test_images_are_saved_in_a_temporary_folder_by_default(url: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    done = run("prompt", url, cwd=tmp_path / "here", env={"TMPDIR": str(tmp_path)})
    (saved,) = tmp_path.glob("ors-images-*/prompt-1.png")
    assert f"[image saved to {saved}]" in done.out
    assert list((tmp_path / "here").iterdir()) == []


def test_a_prompt_as_json_has_its_images_inside(url: str, tmp_path: Path) -> None:
    assert run("prompt", url, "--json", cwd=tmp_path).json[1]["data"] == PICTURE
    assert list(tmp_path.iterdir()) == []


def test_a_task_of_ones_own_and_secrets_reach_the_environment_and_are_not_shown(
    park: str, tmp_path: Path
) -> None:
    done = run(
        *("prompt", park, "--task", '{"n": 77}', "--secret", "TOKEN", "--secret", "OTHER=hidden-too"),
        cwd=tmp_path,
        env={"TOKEN": "hidden-one"},
    )
    assert "Task 77" in done.out
    assert "['OTHER', 'TOKEN']" in done.out
    assert "hidden" not in done.out + done.err


def test_words_are_converted_to_the_types_of_the_parameters(url: str) -> None:
    words = [
        "text=4",
        "count=2",
        "share=1",
        "loud=true",
        "colour=blue",
        'tags=["a"]',
        'where={"x": 1}',
        "either=b",
    ]
    done = run("call", url, "echo", *words)
    assert done.out.splitlines() == [
        "['4', 2, 1.0, True, 'blue', ['a'], {'x': 1}, 'b']",
        'metadata: {"key": "value"}',
        "reward: 0.25",
    ]


def test_words_go_on_top_of_input_which_may_come_from_a_file_or_a_pipe(url: str, tmp_path: Path) -> None:
    (tmp_path / "input.json").write_text('{"text": "file", "count": 5}')
    from_file = run("call", url, "echo", "count=6", "--input", "@input.json", cwd=tmp_path)
    assert from_file.out.startswith("['file', 6,")
    from_pipe = run("call", url, "echo", "--input", "-", "--json", stdin='{"text": "pipe"}')
    assert from_pipe.json["blocks"][0]["text"].startswith("['pipe', 1,")
    assert from_pipe.json["reward"] == 0.25


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["submit"], "submit needs answer. Example: submit answer=0"),
        (["submit", "answer=x"], "answer must be integer, not 'x'"),
        (["submit", "answer=1.5"], "answer must be integer, not '1.5'"),
        (["submit", "anser=1"], "submit has no parameter 'anser'. Parameters: answer"),
        (["submit", "1"], "'1' is not key=value"),
        (["submit", "--input", '{"answer": "3"}'], 'answer must be integer, not "3"'),
        (["submit", "--input", '{"answer": true}'], "answer must be integer, not true"),
        (["echo", "text=a", "colour=green"], 'colour must be "red"|"blue", not \'green\''),
        (["echo", "text=a", "loud=yes"], "loud must be boolean"),
        (["nope"], "There is no tool 'nope'"),
    ],
)
def test_input_that_does_not_fit_is_used_wrongly(url: str, words: list[str], said: str) -> None:
    done = run("call", url, *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_refusal_and_a_failure_are_faults(url: str, park: str) -> None:
    for where in (url, park):
        refused, failed = run("call", where, "refuse"), run("call", where, "fail")
        assert (refused.code, failed.code) == (1, 1)
        assert refused.err == "Error: not today\n"
        assert failed.err.startswith("Error: Tool execution failed: it broke\n")


def test_pictures_of_a_tool_are_saved_where_one_wants_them(url: str, tmp_path: Path) -> None:
    done = run("call", url, "picture", "--images", "deep/er", cwd=tmp_path)
    assert done.out == "[image saved to deep/er/picture-1.png]\n"
    assert (tmp_path / "deep/er/picture-1.png").exists()
