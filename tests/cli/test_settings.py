"""Options from variables and from pyproject.toml; `ors config`, `ors completion`."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Done, run

FILE = """
[tool.ors]
page-size = 7

[tool.ors.tasks]
split = "odd"
"""


def settings(done: Done) -> dict[str, tuple[Any, str]]:
    assert done.code == 0, done.err
    return {one["option"]: (one["value"], one["source"]) for one in done.json}


def test_a_setting_says_where_it_came_from(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(FILE)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (below / "pyproject.toml").write_text("[project]\nname = 'unrelated'\n")
    found = settings(
        run("config", "tasks", "--json", cwd=below, env={"ORS_TASKS_PAGE": "4", "ORS_TASKS_ENV": "x"})
    )
    assert found["page-size"] == (7, str(tmp_path / "pyproject.toml"))
    assert found["split"] == ("odd", str(tmp_path / "pyproject.toml"))
    assert found["page"] == (4, "ORS_TASKS_PAGE")
    assert found["env"] == ("x", "ORS_TASKS_ENV")
    assert found["index"] == (None, "default")


def test_each_option_has_one_variable_which_goes_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ors.serve]\nport = 1\n")
    assert settings(run("config", "serve", "--json", cwd=tmp_path))["port"] == (1, "pyproject.toml")
    # Kubernetes sets ORS_PORT for a Service with the name `ors`.
    env = {"ORS_PORT": "tcp://10.0.0.1:80", "ORS_SERVE_PORT": "3"}
    assert settings(run("config", "serve", "--json", cwd=tmp_path, env=env))["port"] == (3, "ORS_SERVE_PORT")


def test_settings_are_used_and_the_command_line_goes_first(url: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(FILE)
    assert run("tasks", url, "--json", cwd=tmp_path).json["split"] == "odd"
    done = run("tasks", url, "--json", "--split", "train", cwd=tmp_path).json
    assert [task["index"] for task in done["tasks"]] == list(range(7))
    env = {"ORS_TASKS_JSON": "1", "ORS_TASKS_SPLIT": "train"}
    assert run("tasks", url, cwd=tmp_path, env=env).json["split"] == "train"


def test_a_key_is_never_shown(tmp_path: Path, url: str) -> None:
    secret = {"ORS_API_KEY": "very-hidden"}
    done = run("config", "tasks", "--json", env=secret)
    assert settings(done)["api-key"] == ("(set)", "ORS_API_KEY")
    assert "very-hidden" not in run("config", "tasks", env=secret).out
    gone = run("list", "http://127.0.0.1:1", "--api-key", "very-hidden")
    assert "very-hidden" not in done.out + gone.out + gone.err


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


def test_all_settings_are_shown_and_what_no_command_has_is_a_fault(tmp_path: Path) -> None:
    assert {one["command"] for one in run("config", "--json", cwd=tmp_path).json} >= {
        "serve",
        "bench",
        "check",
    }
    (tmp_path / "pyproject.toml").write_text("[tool.ors]\nprot = 1\n[tool.ors.serve]\nhots = 'x'\n")
    done = run("config", cwd=tmp_path)
    assert done.code == 1
    assert "pyproject.toml sets options that no command has: prot, serve.hots" in done.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_completion_script(shell: str) -> None:
    done = run("completion", shell)
    assert done.code == 0
    assert "_ORS_COMPLETE" in done.out


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
