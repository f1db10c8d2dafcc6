"""Targets that name a library: found without importing it, and never in the way of modules."""

from pathlib import Path

import pytest

from ors.cli.errors import Unreachable
from ors.cli.targets.resolve import environments
from ors.errors import InvalidEnvironment
from ors.libraries import LIBRARIES, library_environments, library_of

OWN = """
from ors import Environment, tool

class {name}(Environment):
    tasks = {{"train": [{{}}]}}

    def get_prompt(self):
        return ""

    @tool
    def wait(self) -> str:
        return ""
"""


@pytest.mark.parametrize("library", [name for name, package in LIBRARIES.items() if package])
def test_a_library_that_is_missing_is_one_line_that_says_what_to_install(library: str) -> None:
    with pytest.raises(Unreachable) as refused:
        environments([f"{library}:Something"])
    package = LIBRARIES[library]
    assert str(refused.value) == f"{library}:Something needs the package {package}: pip install {package}"


def test_names_of_files_and_modules_are_no_libraries() -> None:
    for target in ("harbor.py:Harbor", "my.gymnasium:Cart", "gymnasium", "./harbor:Boat", "adder", ":x"):
        assert library_of(target) is None
    assert library_of("reasoning-gym:sudoku") == "reasoning_gym"
    with pytest.raises(InvalidEnvironment, match="names no library; libraries: gymnasium, harbor"):
        library_environments("adder:Adder")


def test_a_module_of_ones_own_goes_before_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("textarena.py").write_text(OWN.format(name="Chess"))
    (cls,) = environments(["textarena:Chess"])
    assert cls.__module__ == "textarena"


def test_a_library_of_folders_needs_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidEnvironment, match="needs a folder, as in harbor:"):
        library_environments("harbor:")
    with pytest.raises(InvalidEnvironment, match=r"no task\.toml in this folder"):
        library_environments(f"harbor:{tmp_path}")
