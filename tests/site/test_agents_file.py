"""AGENTS.md: its code runs, and its commands do what it says."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

from scripts.site import commands
from scripts.site.outside import ROOT
from tests.support.commands import run

pytestmark = pytest.mark.xdist_group("site")
TEXT = (ROOT / "AGENTS.md").read_text()
ENVIRONMENT, TEST = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^ors .*$", TEXT, re.MULTILINE)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both files, under the names that their first lines give."""
    made = tmp_path_factory.mktemp("project")
    for text in (ENVIRONMENT, TEST):
        (made / text.splitlines()[0].removeprefix("# ")).write_text(text)
    return made


def test_its_test_passes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(project)
    importlib.import_module("test_adder").test_only_the_right_answer_is_rewarded()


def test_its_environment_is_fit_to_train_on(project: Path) -> None:
    done = run(
        "test", "adder.py", "--strict", "--limit", "2", "--repeat", "2", "--episodes", "20", cwd=project
    )
    assert done.code == 0, done.out + done.err


def test_its_call_is_rewarded(project: Path) -> None:
    (line,) = [line for line in COMMANDS if line.startswith("ors call")]
    done = run(*shlex.split(line)[1:], "--json", cwd=project)
    assert done.json["reward"] == 1.0


@pytest.mark.parametrize("line", COMMANDS)
def test_its_commands_have_arguments_that_exist(
    project: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    name, *words = shlex.split(line, comments=True)[1:]
    commands.found()[name].make_context(name, words)


def test_it_is_short() -> None:
    assert len(TEXT.split()) < 900
