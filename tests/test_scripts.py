"""The scripts behind targets of make: what they say where something is missing or has failed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"


def told(path: Path, script: str, *words: str) -> tuple[int, str]:
    """The exit code and all output of a script that finds no program but those in a folder."""
    done = subprocess.run(
        ["/bin/sh", str(SCRIPTS / script), *words],
        env={"PATH": str(path), "HOME": str(path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("purpose", "missing"),
    [
        ("browser", "chromium chromium-driver fonts-dejavu-core"),
        ("sandbox", "bubblewrap podman runc mmdebstrap"),
    ],
)
def test_who_cannot_install_a_program_is_told_what_needs_it_and_how_to_get_it(
    purpose: str, missing: str, tmp_path: Path
) -> None:
    code, text = told(tmp_path, "programs", purpose)
    assert code == 0
    assert text.endswith(f"which are missing here. On Debian: sudo apt-get install {missing}\n")


def test_a_python_that_is_too_old_is_told_before_anything_is_made(tmp_path: Path) -> None:
    code, text = told(tmp_path, "environment", "/bin/false", str(tmp_path / "made"), "--editable", ".")
    assert code == 1
    assert text.startswith("ors needs Python 3.11 or newer.")
    assert not (tmp_path / "made").exists()


def test_pythons_that_are_not_here_are_named_and_none_at_all_is_a_failure(tmp_path: Path) -> None:
    code, text = told(tmp_path, "pythons", "tests/test_sse.py")
    assert code == 1
    assert text == "Tests by version of Python: 3.11:absent 3.12:absent 3.13:absent 3.14:absent\n"


FLAWED = """
import os
import pytest

BAD = os.environ["BAD"].split()


@pytest.mark.xdist_group("kin")
@pytest.mark.parametrize("word", ["a", "b@c"])
def test_grouped(word):
    assert word not in BAD


@pytest.mark.parametrize("word", ["plain", "d@e"])
def test_alone(word):
    assert word not in BAD
"""


def ran(folder: Path, *command: str, bad: str) -> tuple[int, str]:
    """The exit code and output of a command of Python in a folder whose tests fail for some words."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}:{folder}", "BAD": bad},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.timeout(200)  # it starts pytest three times
def test_what_has_failed_runs_again_alone_whether_it_has_a_group_or_not(tmp_path: Path) -> None:
    (tmp_path / "test_flawed.py").write_text(FLAWED)
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_collection_modifyitems")
    again = ("scripts.failed_again", "cache")
    run = ("pytest", "-n1", "--dist=loadgroup", "-ocache_dir=cache")
    code, text = ran(tmp_path, *run, bad="a b@c d@e")
    assert (code, "test_grouped[b@c]@kin" in text) == (1, True), text
    code, text = ran(tmp_path, *again, bad="a")
    assert (code, "1 failed, 2 passed" in text) == (1, True), text
    (tmp_path / "test_flawed.py").write_text("def test_other(): pass")
    assert ran(tmp_path, *again, bad="")[0] != 0  # it is not found


def test_a_run_that_has_failed_without_a_failed_test_is_a_failure(tmp_path: Path) -> None:
    code, text = ran(tmp_path, "scripts.failed_again", "cache", bad="")
    assert (code, "nothing to run again" in text) == (1, True)
