"""The examples for TRL and verl, in an environment that has them."""

import csv
import json
import math
import subprocess
from pathlib import Path

import pytest

from ors.cli.targets.process import served
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


def metrics(folder: Path) -> list[dict[str, float]]:
    """What verl says of each step."""
    return [json.loads(line)["data"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


SMALLER = (
    "data.train_batch_size=4",
    "data.val_max_samples=4",
    "actor_rollout_ref.rollout.n=8",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.actor.entropy_coeff=0",
)
WORDS = 27
"""Tokens of the small model, which are equally likely at first."""


def test_verl_trains_the_small_model_and_failed_episodes_have_no_influence(tmp_path: Path) -> None:
    # Who runs out of turns has won too, so that the episodes of the first step all have the same reward.
    loop = (ROOT / "examples/training/verl/agent_loop.yaml").read_text()
    (tmp_path / "loop.yaml").write_text(loop.replace("truncated_reward: 0.0", "truncated_reward: 1.0"))
    config = f"actor_rollout_ref.rollout.agent.agent_loop_config_path={tmp_path / 'loop.yaml'}"
    with served(str(ROOT / "tests/support/failing_hunt.py")) as url:
        words = ("--steps", "3", "--out", str(tmp_path), "--url", url, *SMALLER, config)
        said = run("-m", "examples.training.verl_small", *words)
    assert f"Watch it in the inspector: {url}/-/" in said
    assert [(row["episodes"], row["failed"]) for row in rows(tmp_path)] == [("32", "8")] * 3
    first, second, third = metrics(tmp_path)
    # Failed episodes are left out of verl's metrics, and nothing is learned from them.
    assert (rows(tmp_path)[0]["reward"], first["critic/score/mean"]) == ("1.0", 1.0)
    assert first["actor/grad_norm"] == 0.0
    assert second["actor/entropy"] == pytest.approx(math.log(WORDS), abs=1e-4)
    # The second step is learned from, and the third one is played with what was learned.
    assert second["actor/grad_norm"] > 0.0
    assert third["actor/entropy"] < math.log(WORDS) - 1e-3
    assert third["training/rollout_probs_diff_max"] < 1e-5
    assert third["training/off_policy/trajectory_staleness/max"] == 0
    assert rows(tmp_path)[2]["test"]
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")
