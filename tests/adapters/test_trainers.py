"""The adapters, each in the loop of its trainer: runs the checks beside this file where that is installed."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.side_venvs import SKYRL, TRAINERS, VERIFIERS, Package, environ

ROOT = Path(__file__).parents[2]
CHECKS = Path(__file__).parent / "trainers"
# The trainers warn of much that is not ours.
PYTEST = ["-m", "pytest", "-q", "-o", "addopts=", "-o", "filterwarnings=", "-W", "ignore"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("trainer", sorted(path.stem[6:] for path in CHECKS.glob("check_*.py")))
def test_an_adapter_in_the_loop_of_its_trainer(trainer: str) -> None:
    package: Package = VERIFIERS if trainer.startswith("verifiers") else TRAINERS
    quiet = {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    beside = (
        Path(SKYRL.python()).parents[1].glob("lib/*/site-packages") if trainer == "skyrl_generator" else ()
    )
    path = os.pathsep.join(["src", *map(str, beside)])
    command = [package.python(), *PYTEST, str(CHECKS / f"check_{trainer}.py")]
    done = subprocess.run(
        command, cwd=ROOT, env=environ(PYTHONPATH=path, **quiet), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
