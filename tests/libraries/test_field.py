"""The real libraries, installed beside us: runs the checks in the folder beside this file."""

import subprocess
from pathlib import Path

import pytest

from tests.support.side_venvs import LIBRARIES, environ

ROOT = Path(__file__).parents[2]
CHECKS = Path(__file__).parent / "checks"
# The libraries warn of much that is not ours.
PYTEST = ["-m", "pytest", "-q", "-o", "addopts=", "-o", "filterwarnings=", "-W", "ignore", "-n", "2"]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("library", sorted(path.stem[6:] for path in CHECKS.glob("check_*.py")))
def test_a_library_is_played_as_environments(library: str) -> None:
    command = [LIBRARIES.python(), *PYTEST, str(CHECKS / f"check_{library}.py")]
    quiet = {"PYTHONPATH": "src", "SDL_VIDEODRIVER": "dummy"}
    done = subprocess.run(
        command, cwd=ROOT, env=environ(**quiet), capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
