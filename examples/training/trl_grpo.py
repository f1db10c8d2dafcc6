"""TRL's GRPOTrainer on the number hunt: `python -m examples.training.trl_grpo`.

Without `--model`, a small transformer is made here, from random weights, with a token for each word that it
needs. README.md beside this file shows what to expect. It needs TRL, which this package does not install.
"""

import argparse
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOConfig, GRPOTrainer

from examples.training import curve
from examples.training.small_model import small_model, word_tokenizer
from ors.adapters.trl import TRLEnvironments
from ors.cli.targets.process import served
from ors.client import ORS

ENVIRONMENTS = str(Path(__file__).with_name("number_hunt.py"))
GUESSES = 5
CALL = {
    "x-regex-substitutions": [[r"^(\d+)$", r'{"name": "guess", "arguments": {"number": \1}}']],
    "x-parser": "json",
    "x-parser-args": {"transform": "{type: 'function', function: @}"},
    "type": "object",
    "properties": {
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "arguments": {"type": "object", "additionalProperties": {}},
            },
        },
    },
}
SCHEMA = {
    "x-regex": r"^(?P<content>[^\d]*?)(?P<tool_calls>\d+)?$",
    "type": "object",
    "properties": {
        "role": {"const": "assistant"},
        "content": {"type": "string"},
        "tool_calls": {"type": "array", "x-regex-iterator": r"(\d+)", "items": CALL},
    },
}
"""How TRL reads a reply of the small model: a number is a guess."""


@dataclass(frozen=True)
class Recipe:
    """How a model is trained."""

    steps: int
    tasks: int
    """Tasks of a step."""
    epochs: int
    """How often the episodes of a step are used."""
    learning_rate: float
    entropy: float
    """Weight of the entropy bonus at first; it falls to 0."""
    tokens: int
    """Most tokens of an episode, after the prompt."""
    samples: int = 16
    """Episodes of each task: the group whose mean is the baseline."""


SMALL = Recipe(steps=100, tasks=16, epochs=4, learning_rate=3e-3, entropy=0.01, tokens=64)
GIVEN = Recipe(steps=200, tasks=8, epochs=1, learning_rate=1e-6, entropy=0.0, tokens=2048)


def trl_tokenizer() -> Any:
    """The tokenizer of the small model, which tells TRL what a call is."""
    tokenizer = word_tokenizer()
    tokenizer.response_schema = SCHEMA
    return tokenizer


class Watch(TrainerCallback):
    """Lets the entropy bonus fall, and keeps the rewards of all steps."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.recipe = recipe
        self.folder = folder
        self.trainer: GRPOTrainer | None = None
        self.rows: list[curve.Row] = []
        self.failed = 0
        self._began = time.perf_counter()

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any
    ) -> None:
        """Adds a row for each step, and the reward of the test split to the last one."""
        assert self.trainer is not None
        self.trainer.entropy_coef = self.recipe.entropy * (1 - state.global_step / state.max_steps)
        logs = rest["logs"]
        if "eval_reward" in logs:
            self.rows[-1] = replace(self.rows[-1], test=round(logs["eval_reward"], 4))
        elif "reward" in logs:
            self.rows.append(self._row(logs))
        else:
            return
        print(self.rows[-1], flush=True)
        curve.write(self.rows, self.folder)

    def _row(self, logs: dict[str, float]) -> curve.Row:
        episodes = self.recipe.tasks * self.recipe.samples
        failed, self.failed = self.failed, 0
        return curve.Row(
            step=len(self.rows) + 1,
            seconds=round(time.perf_counter() - self._began, 2),
            reward=round(logs["reward"], 4),
            test=None,
            entropy=round(logs["entropy"], 4),
            episodes=episodes,
            failed=failed,
            truncated=None,
            calls=round(logs["tools/call_frequency"] * episodes),
        )


def train(url: str, recipe: Recipe, given: argparse.Namespace) -> None:
    """Trains on the training split, then plays the test split."""
    torch.manual_seed(given.seed)
    tokenizer = None if given.model else trl_tokenizer()
    watch = Watch(recipe, given.out)
    with ORS(url) as client:
        # Who runs out of turns, or replies without a guess, has lost.
        environments = TRLEnvironments(
            client.environment("numberhunt"), reward="last", truncated_reward=0.0, unscored_reward=0.0
        )

        def reward(**arguments: Any) -> Sequence[float | None]:
            rewards = environments.reward(**arguments)
            watch.failed += rewards.count(None)
            return rewards

        trainer = GRPOTrainer(
            model=given.model or small_model(tokenizer),
            args=settings(recipe, given),
            train_dataset=Dataset.from_list(environments.rows("train")),
            eval_dataset=Dataset.from_list(environments.rows("test")),
            processing_class=tokenizer,
            environment_factory=environments,
            reward_funcs=[reward],
            callbacks=[watch],
        )
        watch.trainer = trainer
        trainer.train()
        trainer.evaluate()


def settings(recipe: Recipe, given: argparse.Namespace) -> GRPOConfig:
    """The recipe, in TRL's words."""
    cpu = not torch.cuda.is_available()
    return GRPOConfig(
        output_dir=str(given.out),
        seed=given.seed,
        per_device_train_batch_size=recipe.tasks * recipe.samples,
        num_generations=recipe.samples,
        num_iterations=recipe.epochs,
        max_steps=recipe.steps * recipe.epochs,
        logging_steps=recipe.epochs,
        per_device_eval_batch_size=26,
        num_generations_eval=2,
        max_completion_length=recipe.tokens,
        max_tool_calling_iterations=GUESSES,
        learning_rate=recipe.learning_rate,
        adam_beta2=0.95,
        entropy_coef=recipe.entropy,
        epsilon_high=0.28,
        gradient_checkpointing=False,
        use_cpu=cpu,
        bf16=not cpu,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )


def main() -> None:
    """Trains as the command line says."""
    parser = argparse.ArgumentParser(description="Train on the number hunt with TRL, over HTTP.")
    parser.add_argument("--model", help="a model of the hub or a folder (default: a small one, made here)")
    parser.add_argument("--steps", type=int, help="steps of the training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("trl"), help="folder for results (default: trl)")
    parser.add_argument("--url", help="server that has the environment (default: one of its own)")
    given = parser.parse_args()
    recipe = GIVEN if given.model else SMALL
    recipe = replace(recipe, steps=max(1, given.steps or recipe.steps))
    given.out.mkdir(parents=True, exist_ok=True)
    with nullcontext(given.url) if given.url else served(ENVIRONMENTS) as url:
        print(f"Watch it in the inspector: {url}/-/", flush=True)
        train(url, recipe, given)


if __name__ == "__main__":
    main()
