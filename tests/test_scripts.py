"""The scripts behind targets of make: what they say where something is missing or has failed."""

import subprocess
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
        ("sandbox", "bubblewrap podman runc docker-registry zstd"),
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


def test_coverage_runs_every_test_once_and_no_failure_twice() -> None:
    planned = subprocess.run(["make", "-n", "coverage"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    runs = [line for line in planned.stdout.splitlines() if " -m pytest " in line]
    assert not any(word in line for line in runs for word in ("||", "lastfailed", "--lf", "--reruns"))
    untraced, hooked, traced, ray = runs
    everything = untraced.partition("-m untraced ")[2]
    assert f"{everything} --ignore tests/quality" == traced.partition('-m "not untraced" ')[2] != ""
    assert hooked.endswith('coverage run -m pytest -m "not untraced" tests/quality')
    assert "coverage run" in traced
    assert "coverage run" not in untraced
    assert ray.endswith('-m "not untraced" -n 0 tests/cluster/ray')
