"""verl on the number hunt, on a CPU: `python -m examples.training.verl_small`, with verl's options after it.

Serves the environment, makes a small model from random weights, and starts verl's trainer with
`verl/number_hunt_small.yaml`. Needs verl and TransferQueue, which this package does not install.
"""

import argparse
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import LlamaConfig

from examples.training import curve, verl_grpo
from examples.training.small_model import small_model, word_tokenizer
from ors.cli.targets.process import served


def write_model(folder: Path, seed: int) -> None:
    """Writes the tokenizer and the weights that a training begins with.

    A Llama, since verl joins messages for Qwen by tokens that only Qwen's own tokenizers have.
    """
    torch.manual_seed(seed)
    tokenizer = word_tokenizer()
    for part in (tokenizer, small_model(tokenizer, LlamaConfig)):
        part.save_pretrained(folder)


def variables(url: str, folder: Path, given: argparse.Namespace) -> dict[str, str]:
    """What the configuration and verl read from the environment of the process."""
    plugins = ("ors.adapters.verl_grpo", "examples.training.verl_small.plugin")
    paths = (str(verl_grpo.HERE.parents[1]), os.environ.get("PYTHONPATH", ""))
    return verl_grpo.variables(url, folder) | {
        "ORS_MODEL": str(folder / "model"),
        "ORS_SEED": str(given.seed),
        "ORS_OUT": str(given.out),
        "VERL_USE_EXTERNAL_MODULES": ",".join(plugins),
        "VERL_PLATFORM": "cpu",
        "VERL_ENGINE_DEVICE": "cuda",  # FSDP is registered under this name; it runs where the platform says
        "VERL_FILE_LOGGER_PATH": str(given.out / "metrics.jsonl"),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # so that Ray listens on 127.0.0.1 only
        "OMP_NUM_THREADS": "1",  # the matrices are small: more threads would only wait for each other
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


def steps(process: subprocess.Popen[bytes], metrics: Path) -> Iterator[Mapping[str, Any]]:
    """The metrics of each step, as verl writes them, until it ends."""
    with metrics.open() as file:
        rest, running = "", True
        while running:
            running = process.poll() is None
            *lines, rest = (rest + file.read()).split("\n")
            yield from map(json.loads, lines)
            time.sleep(0.5)


def row(step: int, began: float, said: Mapping[str, float]) -> curve.Row:
    """A step of the curve. Failed episodes are left out of the mean."""
    tests = [value for name, value in said.items() if name.startswith("val-core/numberhunt/reward/mean")]
    return curve.Row(
        step=step,
        seconds=round(began + said["timing_s/step"] + said.get("timing_s/testing", 0.0), 2),
        reward=round(said["critic/score/mean"], 4),
        test=round(tests[0], 4) if tests else None,
        entropy=round(said["actor/entropy"], 4),
        episodes=round(said["ors/episodes"]),
        failed=round(said["ors/failed"]),
        truncated=round(said["ors/truncated"]),
        calls=round(said["ors/calls"]),
    )


def train(url: str, folder: Path, given: argparse.Namespace, options: list[str]) -> int:
    """Runs verl, and writes the curve as it goes; returns the exit status of verl."""
    verl_grpo.write_rows(url, folder)
    write_model(folder / "model", given.seed)
    (given.out / "metrics.jsonl").write_text("")
    rows: list[curve.Row] = []
    command = verl_grpo.command(
        [f"trainer.total_training_steps={given.steps}", *options], "number_hunt_small"
    )
    environ = os.environ | variables(url, folder, given)
    with (
        (given.out / "verl.log").open("wb") as log,
        subprocess.Popen(command, env=environ, stdout=log, stderr=subprocess.STDOUT) as process,
    ):
        for line in steps(process, given.out / "metrics.jsonl"):
            rows.append(row(line["step"], rows[-1].seconds if rows else 0.0, line["data"]))
            print(rows[-1], flush=True)
            curve.write(rows, given.out)
    print(curve.summary(rows) if rows else f"verl took no step: {given.out / 'verl.log'} says why.")
    return process.returncode


def main() -> int:
    """Trains as the command line says."""
    parser = argparse.ArgumentParser(description="Train on the number hunt with verl, on a CPU, over HTTP.")
    parser.add_argument("--steps", type=int, default=60, help="steps of the training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("verl-small"), help="folder for results")
    parser.add_argument("--url", help="server that has the environment (default: one of its own)")
    given, options = parser.parse_known_args()
    given.out = given.out.absolute()
    given.out.mkdir(parents=True, exist_ok=True)
    environment = str(verl_grpo.HERE / "number_hunt.py")
    with nullcontext(given.url) if given.url else served(environment) as url, TemporaryDirectory() as folder:
        print(f"Watch it in the inspector: {url}/-/", flush=True)
        return train(url, Path(folder), given, options)


if __name__ == "__main__":
    raise SystemExit(main())
