"""Options from variables and from pyproject.toml, and completion by shells."""

from pathlib import Path

import pytest

from tests.support.commands import run

FILE = """
[tool.ors]
page-size = 7

[tool.ors.tasks]
split = "odd"
"""


def test_the_nearest_file_with_a_table_is_used(url: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(FILE)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (below / "pyproject.toml").write_text("[project]\nname = 'unrelated'\n")
    found = run("tasks", url, "--json", cwd=below).json
    assert (found["split"], len(found["tasks"])) == ("odd", min(7, found["num_tasks"]))


def test_each_option_has_one_variable_which_goes_before_the_file(url: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(FILE)
    # Kubernetes sets ORS_PORT for a Service with the name `ors`: only the command's own variable counts.
    env = {"ORS_SPLIT": "nope", "ORS_TASKS_SPLIT": "train"}
    assert run("tasks", url, "--json", cwd=tmp_path, env=env).json["split"] == "train"


def test_settings_are_used_and_the_command_line_goes_first(url: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(FILE)
    assert run("tasks", url, "--json", cwd=tmp_path).json["split"] == "odd"
    done = run("tasks", url, "--json", "--split", "train", cwd=tmp_path).json
    assert [task["index"] for task in done["tasks"]] == list(range(7))
    env = {"ORS_TASKS_JSON": "1", "ORS_TASKS_SPLIT": "train"}
    assert run("tasks", url, cwd=tmp_path, env=env).json["split"] == "train"


def test_a_key_is_never_shown() -> None:
    gone = run("list", "http://127.0.0.1:1", "--api-key", "very-hidden")
    assert gone.code == 3
    assert "very-hidden" not in gone.out + gone.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.ors]\napi-key = 'x'\n", "'api_key' must not be in a file; set a variable instead"),
        ("[tool.ors.list]\napi_key = 'x'\n", "'api_key' must not be in a file"),
        ("[tool\n", "is not valid TOML"),
        ("[tool]\nors = 3\n", "[tool.ors] must be a table"),
        ("[tool.ors.list]\nports = 3\n", "sets list.ports in [tool.ors], but there is no such option"),
    ],
)
def test_a_file_that_is_wrong_is_told(tmp_path: Path, url: str, text: str, said: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    done = run("list", url, cwd=tmp_path)
    assert done.code == 2
    assert said in done.err


def test_a_value_of_the_wrong_type_is_told(url: str) -> None:
    done = run("tasks", url, env={"ORS_TASKS_PAGE": "many"})
    assert done.code == 2
    assert "'many' is not a valid integer" in done.err


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("ors pl", ["plain,play"]),
        ("ors serve --lo", ["plain,--log-level", "plain,--log-json"]),
        ("ors init x --template ", ["plain,basic", "plain,game", "plain,sandbox"]),
        ("ors list exa", ["file,exa"]),
    ],
)
def test_a_shell_completes_commands_options_values_and_files(words: str, offered: list[str]) -> None:
    count = str(len(words.split(" ")) - 1)
    done = run(env={"_ORS_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": count})
    assert done.out.splitlines() == offered
