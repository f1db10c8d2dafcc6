"""Which code an environment is: its version and hash, in the description, in runs and in exports."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ors.rollouts.records import read_run
from tests.cli.targets.test_installed import install
from tests.rollouts.records.test_info import git
from tests.support.commands import Done, run

ASK = """
import json, sys
from importlib import import_module
module, name = sys.argv[1].split(":")
found = getattr(import_module(module), name)._identity()
print(json.dumps([found.version, found.hash]))
"""


def identity(code: str, *path: Path) -> list[str | None]:
    """The version and hash of a class, in a process that finds packages at a path."""
    done = subprocess.run(
        [sys.executable, "-c", ASK, code],
        env={"PYTHONPATH": ":".join(map(str, path))},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[str | None] = json.loads(done.stdout)
    return found


def record(folder: Path, package: str, version: str) -> None:
    """Writes the list of files that an installer leaves."""
    files = [*(folder / package).rglob("*"), *(folder / f"{package}-{version}.dist-info").iterdir()]
    rows = [f"{path.relative_to(folder)},sha256=x,1" for path in files if path.is_file()]
    (folder / f"{package}-{version}.dist-info" / "RECORD").write_text("\n".join(rows) + "\n")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    install(tmp_path / "site", "shelf", "1.2", {"first-one": "shelf:One"})
    (tmp_path / "site" / "shelf" / "tasks.jsonl").write_text("{}\n")
    record(tmp_path / "site", "shelf", "1.2")
    return tmp_path / "site"


def test_a_package_has_its_version_and_one_hash_of_all_that_it_installs(site: Path, tmp_path: Path) -> None:
    version, first = identity("shelf:One", site)
    assert (version, len(first or "")) == ("1.2", 64)
    (site / "other.py").write_text("")  # of another package
    (site / "shelf-1.2.dist-info" / "INSTALLER").write_text("pip")
    assert identity("shelf:One", site) == ["1.2", first]
    (site / "shelf" / "tasks.jsonl").write_text("{}\n{}\n")
    assert identity("shelf:One", site)[1] != first
    # The same code in a work tree has the same hash, without the version.
    (site / "shelf" / "tasks.jsonl").write_text("{}\n")
    (site / "shelf").rename(tmp_path / "shelf")
    git(tmp_path, "init", "-b", "main")
    git(tmp_path, "add", "shelf")
    assert identity("shelf:One", tmp_path) == [None, first]


def test_two_versions_side_by_side_are_told_apart(site: Path, tmp_path: Path) -> None:
    install(tmp_path / "new", "shelf", "2.0", {"first-one": "shelf:One"})
    assert identity("shelf:One", tmp_path / "new", site)[0] == "2.0"
    assert identity("shelf:One", site, tmp_path / "new")[0] == "1.2"


def test_a_file_beside_an_installed_package_of_its_name_has_no_version(site: Path, tmp_path: Path) -> None:
    (tmp_path / "shelf.py").write_text((site / "shelf" / "__init__.py").read_text())
    assert identity("shelf:One", tmp_path, site)[0] is None


def test_an_editable_package_has_a_version(site: Path, tmp_path: Path) -> None:
    (site / "shelf").rename(tmp_path / "shelf")
    info = site / "shelf-1.2.dist-info"
    (info / "RECORD").write_text("shelf.pth,,\n")
    (info / "direct_url.json").write_text(
        json.dumps({"url": f"file://{tmp_path}", "dir_info": {"editable": True}})
    )
    assert identity("shelf:One", tmp_path, site)[0] == "1.2"


def test_task_files_that_a_class_declares_are_part_of_it_wherever_they_are(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"n": 1}\n')
    code = "from ors import Environment\nclass One(Environment):\n    tasks = {'train': '../data.jsonl'}\n"
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "one.py").write_text(code)
    before = identity("one:One", tmp_path / "code")
    (tmp_path / "data.jsonl").write_text('{"n": 2}\n')
    assert identity("one:One", tmp_path / "code") != before


Ors = Callable[..., Done]


@pytest.fixture
def ors(site: Path, tmp_path: Path) -> Ors:
    def command(*words: str) -> Done:
        return run(*words, cwd=tmp_path, env={"PYTHONPATH": str(site)})

    return command


def kept(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text())["environments"]["one"]
    return found


@pytest.mark.long
def test_a_run_remembers_version_and_hash_and_so_do_its_episodes_and_exports(
    ors: Ors, site: Path, tmp_path: Path
) -> None:
    play = ("eval", "first-one", "--model", "random", "--out")
    assert ors(*play, "first").code == 0
    told = kept(tmp_path / "first")
    assert (told["version"], told.pop("parameters")) == ("1.2", None)
    (record,) = read_run(tmp_path / "first").episodes()
    assert {"version": record.version, "hash": record.hash} == told
    for format in ("openai", "atif"):
        assert ors("runs", "export", "first", "--format", format, "--out", format).code == 0
    assert json.loads((tmp_path / "openai").read_text())["metadata"] == {"environment": "one", **told}
    (trajectory,) = (tmp_path / "atif").glob("*.json")
    assert json.loads(trajectory.read_text())["extra"]["environment"] == told

    assert ors("eval", "--resume", "first").code == 0
    assert ors("runs", "compare", "first", "first").err == ""
    metadata = site / "shelf-1.2.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("1.2", "1.3"))
    done = ors("eval", "--resume", "first")
    assert (done.code, "The environment's code has changed" in done.err) == (2, True)
    assert ors(*play, "second").code == 0
    done = ors("runs", "compare", "first", "second", "--json")
    short = told["hash"][:12]
    assert done.err == (
        "Warning: the environment differs: "
        f"one: 1.2 ({short}) in the first run, 1.3 ({short}) in the second\n"
    )
    assert done.json["before"] == 1.0


def test_an_environment_of_a_library_is_the_code_of_the_library(site: Path, tmp_path: Path) -> None:
    (tmp_path / "ours.py").write_text("import shelf\nclass One(shelf.One):\n    _library = 'shelf'\n")
    assert identity("ours:One", tmp_path, site) == identity("shelf:One", site)


def test_what_a_broken_installation_left_behind_is_no_obstacle(site: Path) -> None:
    (site / "~helf-1.1.dist-info").mkdir()
    (site / "shelf-1.2.dist-info" / "RECORD").unlink()
    assert identity("shelf:One", site)[0] == "1.2"
