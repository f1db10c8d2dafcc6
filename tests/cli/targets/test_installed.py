"""Environments of installed packages, by their names."""

from pathlib import Path

import pytest

from tests.support.commands import run

CODE = """\
from ors import Environment, TextBlock, ToolOutput, tool

class {name}(Environment):
    tasks = {{"train": [{{"n": 1}}]}}
    def get_prompt(self):
        return [TextBlock("?")]
    @tool
    def submit(self) -> ToolOutput:
        "Submit."
        return ToolOutput([], reward=1.0, finished=True)
"""


def install(folder: Path, package: str, version: str, points: dict[str, str]) -> None:
    """Puts a package where Python finds it, as an installer would."""
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").write_text(CODE.format(name="One") + CODE.format(name="Two"))
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    rows = [f"{name} = {code}" for name, code in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[ors.environments]", *rows]) + "\n")


@pytest.fixture
def path(tmp_path: Path) -> dict[str, str]:
    install(tmp_path / "site", "shelf", "1.2", {"first-one": "shelf:One", "both": "shelf"})
    install(tmp_path / "site", "attic", "0.3", {"twice": "attic:One"})
    install(tmp_path / "site", "cellar", "0.4", {"Twice": "cellar:Two"})
    return {"PYTHONPATH": str(tmp_path / "site")}


def names(where: str, path: dict[str, str], cwd: Path) -> list[str]:
    return [one["name"] for one in run("list", where, "--json", env=path, cwd=cwd).json]


def test_a_name_stands_for_the_environment_that_a_package_offers(
    path: dict[str, str], tmp_path: Path
) -> None:
    assert names("first-one", path, tmp_path) == ["one"]
    assert names("First_One==1.2", path, tmp_path) == ["one"]
    assert names("both", path, tmp_path) == ["one", "two"]
    assert names("shelf:Two", path, tmp_path) == ["two"]
    done = run("eval", "first-one", "--model", "random", "--out", "run", env=path, cwd=tmp_path)
    assert "mean reward 1" in done.out.replace(":", ""), done.out + done.err


def test_a_folder_goes_before_an_installed_name(path: dict[str, str], tmp_path: Path) -> None:
    install(tmp_path / "first-one", "inner", "1", {})
    assert names("first-one", path, tmp_path) == ["one", "two"]


def test_installed_environments_are_listed(path: dict[str, str], tmp_path: Path) -> None:
    listed = run("list", "--installed", "--json", env=path, cwd=tmp_path).json
    assert {"name": "first-one", "version": "1.2", "package": "shelf", "code": "shelf:One"} in listed
    assert "first-one" in run("list", "--installed", env=path, cwd=tmp_path).out
    assert run("list", env=path, cwd=tmp_path).code == 2
    assert run("list", "both", "--installed", env=path, cwd=tmp_path).code == 2


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("first-one==2.0", "first-one 1.2 is installed, not 2.0: pip install 'shelf==2.0'"),
        ("third==1", "No installed package offers 'third'. Installed environments: "),
        ("twice", "Several packages offer 'twice': give cellar:Two (cellar) or attic:One (attic) instead"),
        ("third", "'third' is neither the URL of a server, nor an installed environment"),
    ],
)
def test_a_name_that_stands_for_nothing_is_one_clear_line(
    target: str, said: str, path: dict[str, str], tmp_path: Path
) -> None:
    done = run("list", target, env=path, cwd=tmp_path)
    assert done.code in (2, 3)
    assert said in done.err
    assert done.err.count("\n") == 1
