"""`ors init`: what it writes works as it is."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.commands import run, variables

pytestmark = pytest.mark.long

TEMPLATES = ["basic", "game", "sandbox"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_tests_of_a_new_package_pass_as_generated(template: str, tmp_path: Path) -> None:
    assert run("init", "my-env", "--template", template, cwd=tmp_path).code == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=tmp_path / "my-env",
        env=variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_environment_is_fit_to_train_on(template: str, tmp_path: Path) -> None:
    run("init", "my-env", "--template", template, cwd=tmp_path)
    how = ["--sample", "1", "--episodes", "20", "--json"]
    done = run("test", "my-env", *how, cwd=tmp_path, patience=150)  # the sandbox opens a hundred of them
    (report,) = done.json
    assert (done.code, report["findings"], report["not_tried"]) == (0, [], {})
    assert report["figures"]["gold earns"] == 1


@pytest.mark.long
@pytest.mark.timeout(180)
def test_new_packages_are_linted_and_typed(tmp_path: Path) -> None:
    tools = (
        ["ruff", "check", "--isolated", "--select", "E,F,I,B,D1", "--line-length", "110", "src"],
        ["ruff", "check", "--isolated", "--select", "E,F,I,B", "--line-length", "110", "tests"],
        ["ruff", "format", "--isolated", "--check", "--line-length", "110", "."],
        ["mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "src", "tests"],
    )
    for template in TEMPLATES:
        run("init", f"my-{template}", "--template", template, cwd=tmp_path)
        for tool in tools:
            done = subprocess.run(
                [sys.executable, "-m", *tool],
                cwd=tmp_path / f"my-{template}",
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout


def test_a_new_package_is_served_played_and_named_after_its_folder(tmp_path: Path) -> None:
    done = run("init", "deep/Word_Game", "--template", "game", "--json", cwd=tmp_path)
    assert done.json["class"] == "WordGame"
    project = tmp_path / "deep" / "Word_Game"
    assert tomllib.loads((project / "pyproject.toml").read_text())["project"]["name"] == "word-game"
    assert sorted(done.json["files"]) == sorted(
        str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()
    )
    assert "{{" not in "".join(path.read_text() for path in project.rglob("*") if path.is_file())
    assert run("list", str(project), "--json").json[0]["name"] == "wordgame"


def test_the_container_serves_the_package(tmp_path: Path) -> None:
    run("init", "adder", cwd=tmp_path)
    command = re.search(r"^CMD (.*)$", (tmp_path / "adder" / "Dockerfile").read_text(), re.MULTILINE)
    assert command
    assert json.loads(command[1]) == ["ors", "serve", "adder", "--host", "0.0.0.0", "--port", "8080"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "adder").mkdir()
    (tmp_path / "adder" / "mine.txt").write_text("mine")
    done = run("init", "adder", cwd=tmp_path)
    assert done.code == 2
    assert "already exists" in done.err
    assert [path.name for path in (tmp_path / "adder").iterdir()] == ["mine.txt"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "adder").mkdir()
    assert run("init", "adder", cwd=tmp_path).code == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("2fast", "is not a valid package name"),
        ("a b", "not a valid package name"),
        ("json", "would hide"),
        ("class", "would hide"),
    ],
)
def test_a_name_that_cannot_be_imported_is_refused(tmp_path: Path, name: str, said: str) -> None:
    done = run("init", name, cwd=tmp_path)
    assert done.code == 2
    assert said in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_class_does_not_take_a_name_that_its_module_needs(tmp_path: Path) -> None:
    assert run("init", "task", "--json", cwd=tmp_path).json["class"] == "TaskEnvironment"
    assert run("list", "task", "--json", cwd=tmp_path).json[0]["name"] == "taskenvironment"
