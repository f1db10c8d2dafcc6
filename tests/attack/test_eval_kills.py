"""`ors eval`, killed at random moments: a resumed run has every episode once."""

import random
import subprocess
import time
from pathlib import Path

from ors.rollouts.records import read_run
from tests.attack.conftest import Scale, Tally
from tests.support import SUPPORT
from tests.support.commands import ORS, run, variables
from tests.support.waiting import wait_until

QUIZ = str(SUPPORT / "eval_environments.py")
TASKS, SAMPLES = 10, 3
WANTED = {(index, sample) for index in range(TASKS) for sample in range(SAMPLES)}
SLOW = {"QUIZ_SECONDS": "0.05"}


def test_a_killed_run_is_resumed_with_no_episode_twice(scale: Scale, tally: Tally, tmp_path: Path) -> None:
    chance = random.Random(scale.seed)
    kept = [_killed_and_resumed(tmp_path, f"run{n}", chance.random()) for n in range(scale.of(2, 20))]
    assert any(0 < count < len(WANTED) for count in kept), "no kill came in the middle of a run"
    tally(
        f"{len(kept)} runs of {len(WANTED)} episodes killed, with {kept} of them played",
        "all complete, none twice",
    )


def _killed_and_resumed(folder: Path, name: str, moment: float) -> int:
    """Kills a run at a moment between its first and its last episode; returns how many were kept."""
    how = ["--model", "gold", "--tasks", f"0:{TASKS}", "--samples", str(SAMPLES), "--concurrency", "3"]
    process = subprocess.Popen(
        [*ORS, "eval", QUIZ, *how, "--out", name, "--json"],
        cwd=folder,
        env=variables(SLOW),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: process.poll() is not None or (folder / name / "run.json").is_file())
        assert process.poll() is None
        time.sleep(moment * 0.05 * len(WANTED) / 3)
    finally:
        process.kill()
        process.wait()
    kept = len(read_run(folder / name).entries)
    done = run("eval", "--resume", name, "--json", cwd=folder, env=SLOW)
    assert done.code == 0, done.err
    entries = read_run(folder / name).entries
    assert sorted((entry.task.index, entry.sample) for entry in entries) == sorted(WANTED)
    assert len((folder / name / "episodes.jsonl").read_text().splitlines()) == len(WANTED)
    assert {entry.reward for entry in entries} == {1.25}
    return kept
