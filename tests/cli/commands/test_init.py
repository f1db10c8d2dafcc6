"""`ors init`: what it writes works as it is."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ors.rollouts.records import read_run
from tests.rollouts.records.test_info import git
from tests.support.commands import run, running, variables
from tests.support.raw_http import Raw

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.long

TEMPLATES = ["basic", "game", "sandbox"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_tests_of_a_new_package_pass_as_generated(template: str, tmp_path: Path) -> None:
    assert run("init", "my-env", "--template", template, cwd=tmp_path).code == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:asyncio"],
        cwd=tmp_path / "my-env",
        env=variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_card_of_a_new_package_is_true(template: str, tmp_path: Path) -> None:
    run("init", "my-env", "--template", template, cwd=tmp_path)
    done = run("card", "my-env", "--readme", "my-env/README.md", "--check", cwd=tmp_path)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert "| train |" in (tmp_path / "my-env" / "README.md").read_text()


@pytest.mark.long
@pytest.mark.untraced
@pytest.mark.timeout(180)
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_environment_is_fit_to_train_on(template: str, tmp_path: Path) -> None:
    run("init", "my-env", "--template", template, cwd=tmp_path)
    how = ["--limit", "1", "--episodes", "20", "--json"]
    done = run("test", "my-env", *how, cwd=tmp_path, patience=150)  # the sandbox opens a hundred of them
    (report,) = done.json
    # Twenty sandboxes under a memory tracer may take longer than the time for that step.
    untried = set(report["not_tried"]) - ({"memory"} if template == "sandbox" else set())
    assert (done.code, report["findings"], untried) == (0, [], set())
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
    assert run("list", str(project), "--json").json[0]["name"] == "word-game"


def test_the_container_serves_the_package(tmp_path: Path) -> None:
    run("init", "adder", cwd=tmp_path)
    command = re.search(r"^CMD (.*)$", (tmp_path / "adder" / "Dockerfile").read_text(), re.MULTILINE)
    assert command
    assert json.loads(command[1]) == ["ors", "serve", "adder", "--host", "0.0.0.0", "--port", "8080"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_package_with_a_wheel_installs_serves_and_passes_its_tests_in_a_fresh_environment(
    tmp_path: Path,
) -> None:
    assert run("init", "adder", cwd=tmp_path).code == 0
    project, image = tmp_path / "adder", tmp_path / "image"
    wheel = ["pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(project / "wheels"), str(ROOT)]
    subprocess.run([sys.executable, "-m", *wheel], check=True)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    path = {"PATH": f"{tmp_path / 'venv' / 'bin'}:{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    command = followed(project / "Dockerfile", image, variables(path))
    served = [word.replace("0.0.0.0", "127.0.0.1").replace("8080", "0") for word in command]
    with running(*served[1:], command=[str(tmp_path / "venv" / "bin" / "ors")], cwd=image) as server:
        assert Raw(server.url()).get("/adder/splits").json()
    words = "ors eval adder==0.1.0 --model gold --split test --limit 2 --out run --json"
    done = subprocess.run(words.split(), cwd=tmp_path, env=variables(path), capture_output=True, text=True)
    assert json.loads(done.stdout)["reward"]["mean"] == 1.0, done.stderr
    installed = read_run(tmp_path / "run").info.environments["adder"]
    assert (installed.version, len(installed.hash or "")) == ("0.1.0", 64)
    steps = re.findall("- run: (.*)", (project / ".github" / "workflows" / "test.yml").read_text())
    assert steps[2:] == ["ors test adder --strict", "ors card adder --check"]
    for words in steps:
        done = subprocess.run(
            shlex.split(words), cwd=project, env=variables(path), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    # The same code from its work tree is the same environment.
    git(project, "init", "-b", "main")
    git(project, "add", ".")
    words = "ors eval --resume run adder"
    done = subprocess.run(words.split(), cwd=tmp_path, env=variables(path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def followed(dockerfile: Path, image: Path, env: dict[str, str]) -> list[str]:
    """Does here what a Dockerfile does, but for users and packages of the system; returns its command."""
    image.mkdir()
    command: list[str] = []
    for line in dockerfile.read_text().splitlines():
        step, _, rest = line.partition(" ")
        if step == "COPY":
            *sources, target = rest.split()
            for source in (dockerfile.parent / name for name in sources):
                copy = shutil.copytree if source.is_dir() else shutil.copy
                copy(source, image / target)
        elif step == "RUN" and rest.startswith("pip "):
            subprocess.run(shlex.split(rest), cwd=image, env=env, check=True, capture_output=True)
        elif step == "CMD":
            command = json.loads(rest)
        else:
            assert step in ("", "#", "FROM", "WORKDIR", "USER", "EXPOSE", "RUN"), line
            assert step != "RUN" or rest.split()[0] in ("useradd", "apt-get"), line
    return command


def test_both_containers_install_and_serve_alike(tmp_path: Path) -> None:
    steps = []
    for template in ("basic", "sandbox"):
        run("init", f"my-{template}/my-env", "--template", template, cwd=tmp_path)
        lines = (tmp_path / f"my-{template}" / "my-env" / "Dockerfile").read_text().splitlines()
        steps.append([line for line in lines if line and not line.startswith(("#", "RUN apt-get"))])
    assert steps[0] == steps[1]


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
    assert run("list", "task", "--json", cwd=tmp_path).json[0]["name"] == "taskenvironment"  # task is a path
    assert run("init", "bash", cwd=tmp_path).code == 0
    assert run("list", "bash", "--json", cwd=tmp_path).json[0]["name"] == "bash"
