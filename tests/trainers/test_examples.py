"""The examples for TRL and verl, in an environment that has them."""

import csv
import subprocess
from pathlib import Path

import pytest

from tests.support.side_venvs import TRAINERS, environ

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
PYTEST = ["-m", "pytest", "-q", "-o", "addopts=", "-o", "filterwarnings=", "-W", "ignore"]
QUIET = {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
VARIABLES = environ(PYTHONPATH="src", **QUIET)


def run(*words: str) -> str:
    """Runs a command of the side environment; returns what it printed."""
    command = [TRAINERS.python(), *words]
    done = subprocess.run(command, cwd=ROOT, env=VARIABLES, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.parametrize("trainer", ["trl", "verl"])
def test_the_parts_of_an_example(trainer: str) -> None:
    run(*PYTEST, str(Path(__file__).with_name(f"check_{trainer}.py")))


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "curve.csv").open() as file:
        return list(csv.DictReader(file))


def test_trl_trains_the_small_model_and_writes_its_curve(tmp_path: Path) -> None:
    said = run("-m", "examples.training.trl_grpo", "--steps", "2", "--out", str(tmp_path))
    assert "Watch it in the inspector: http://" in said
    first, last = rows(tmp_path)
    assert 0 < float(first["reward"]) < 0.5  # chance
    assert {first["failed"], last["failed"]} == {"0"}
    assert last["test"]
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")
