"""The GRPO example, in an environment that has torch: its parts, and a short training over HTTP."""

import csv
import re
import subprocess
from pathlib import Path
from statistics import fmean

import pytest

from tests.support.side_venvs import TRAINERS, environ

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
PYTEST = ["-m", "pytest", "-q", "-o", "addopts=", "-o", "filterwarnings=", "-W", "ignore"]
VARIABLES = environ(PYTHONPATH="src", OMP_NUM_THREADS="1")


def test_the_parts_of_the_trainer() -> None:
    command = [TRAINERS.python(), *PYTEST, str(Path(__file__).with_name("check_grpo.py"))]
    done = subprocess.run(command, cwd=ROOT, env=VARIABLES, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-2000:]}"


def trained(*words: str) -> list[str]:
    """A command line that trains."""
    return [TRAINERS.python(), "-m", "examples.training.grpo", *words]


def test_a_short_training_learns_and_goes_on_after_it_was_killed(tmp_path: Path) -> None:
    words = ("--steps", "24", "--out", str(tmp_path))
    with subprocess.Popen(
        trained(*words), cwd=ROOT, env=VARIABLES, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert any(line.startswith("step   11 ") for line in first.stdout), "it ended early"
        first.kill()
    done = subprocess.run(
        trained(*words, "--resume"), cwd=ROOT, env=VARIABLES, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.findall(r"^step +(\d+)", done.stdout, re.MULTILINE) == [str(step) for step in range(11, 25)]
    last = re.compile(
        r"^24 steps in \d+ s\. Reward \S+ in the last five, \S+ on the test split\. 11,520 .+ 0 failed\.$"
    )
    assert any(map(last.match, done.stdout.splitlines())), done.stdout
    with (tmp_path / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(1, 25))
    assert {row["failed"] for row in rows} == {"0"}
    rewards = [float(row["reward"]) for row in rows]
    assert fmean(rewards[:2]) < 0.1  # chance
    assert fmean(rewards[-5:]) > 0.35
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--resume",), "There is no training to go on with"),
        (("--device", "cuda"), "PyTorch finds no GPU here"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    command = trained(*words, "--out", str(tmp_path))
    done = subprocess.run(command, cwd=ROOT, env=VARIABLES, capture_output=True, text=True)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
