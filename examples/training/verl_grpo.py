"""verl on the number hunt: `python -m examples.training.verl_grpo`, with verl's options after it.

Serves the environment, writes its tasks as rows, and starts verl's trainer with `verl/number_hunt.yaml`.
Needs verl, vLLM and a GPU; `--cfg job`, which prints the configuration, needs verl only.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from ors.cli.targets.process import served
from ors.client import ORS

HERE = Path(__file__).parent
CONFIG = HERE / "verl"


def write_rows(url: str, folder: Path) -> None:
    """Writes `train.jsonl` and `test.jsonl`: a row names its task; the prompt comes from the environment."""
    with ORS(url) as client:
        env = client.environment("numberhunt")
        for split in ("train", "test"):
            tasks = [{"split": split, "index": index} for index in range(env.num_tasks(split))]
            prompt = [{"role": "user", "content": "The environment has the prompt."}]
            rows = [{"data_source": "numberhunt", "prompt": prompt, "extra_info": task} for task in tasks]
            (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def variables(url: str, rows: Path) -> dict[str, str]:
    """What the configuration reads from the environment of the process, and verl itself."""
    own = {"ORS_URL": url, "ORS_ROWS": str(rows), "ORS_VERL": str(CONFIG)}
    return own | {"VERL_USE_EXTERNAL_MODULES": "ors.adapters.verl_grpo"}


def command(options: Sequence[str], config: str = "number_hunt") -> list[str]:
    """The command line that starts verl's trainer."""
    named = ["--config-path", str(CONFIG), "--config-name", config]
    return [sys.executable, "-m", "verl.trainer.main_ppo", *named, *options]


def main(options: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Trains; returns the exit status of verl."""
    if not torch.cuda.is_available() and "--cfg" not in options:
        raise SystemExit(
            "This training needs a GPU, and PyTorch finds none here. "
            "On a CPU: python -m examples.training.verl_small"
        )
    with served(str(HERE / "number_hunt.py")) as url, TemporaryDirectory() as rows:
        print(f"Watch it in the inspector: {url}/-/", flush=True)
        write_rows(url, Path(rows))
        return subprocess.call(command(options), env={**environ, **variables(url, Path(rows))})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
