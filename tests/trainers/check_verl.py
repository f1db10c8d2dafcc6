"""verl's configuration of the number hunt. Needs verl: `test_examples.py` runs this where it is installed."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config
from verl.utils.dataset.rl_dataset import RLHFDataset

import ors.adapters.verl_grpo  # noqa: F401 - registers grpo_ors
from examples.training import verl_grpo
from ors.cli.targets.process import served
from tests.adapters.trainers.check_verl import TokenServer
from tests.support.tiny_model import called, tiny_model, tiny_tokenizer

WON = (called("guess", number=8), called("guess", number=1))
LOST = tuple(called("guess", number=9) for _ in range(5))
OUTSIDE = tuple(called("guess", number=99) for _ in range(6))


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The configuration of the example, for a tiny model and a server that runs."""
    with served(str(verl_grpo.HERE / "number_hunt.py")) as url:
        verl_grpo.write_rows(url, tmp_path)
        for name, value in verl_grpo.variables(url, tmp_path).items():
            monkeypatch.setenv(name, value)
        tiny_tokenizer().save_pretrained(tmp_path / "model")
        tiny_model().save_pretrained(tmp_path / "model")
        with initialize_config_dir(str(verl_grpo.CONFIG), version_base=None):
            # The tiny tokenizer has one token a byte.
            lengths = ["data.max_prompt_length=3000", "data.max_response_length=3000"]
            model = f"actor_rollout_ref.model.path={tmp_path / 'model'}"
            yield compose("number_hunt", overrides=[model, *lengths])


def test_verl_takes_the_configuration(config: Any) -> None:
    validate_config(config, need_reference_policy(config), need_critic(config))
    assert config.algorithm.adv_estimator == "grpo_ors"


async def test_the_loop_of_the_configuration_plays_the_rows_and_its_estimator_makes_advantages(
    config: Any,
) -> None:
    tokenizer = tiny_tokenizer()
    rows = RLHFDataset(config.data.train_files, tokenizer, config.data)
    assert len(rows) == 10 + 12 + 14 + 16
    server = TokenServer(tokenizer, [WON, LOST, OUTSIDE])
    worker = AgentLoopWorker(config, llm_client=server)
    first = {key: rows[0][key] for key in ("raw_prompt", "extra_info", "index")} | {"uid": "a"}
    batch = {key: np.array([None] * 3, dtype=object) for key in first}
    for key, value in first.items():
        for number in range(3):
            batch[key][number] = value
    done = await worker.generate_sequences(DataProto(non_tensor_batch=batch, meta_info={}))
    played = dict(
        zip(done.non_tensor_batch["ors_outcome"], done.batch["rm_scores"].sum(-1).tolist(), strict=True)
    )
    assert sorted(done.batch["rm_scores"].sum(-1).tolist()) == [0.0, 0.0, 1.0]
    assert played["truncated"] == 0.0
    assert done.batch["response_mask"].any(-1).all()  # a lost episode is learned from too
    assert all("between 1 and 10" in tokenizer.decode(each[0]) for each in server.prompts.values())
    done.batch["token_level_rewards"] = done.batch["rm_scores"]
    made = compute_advantage(done, config.algorithm.adv_estimator, config=config.algorithm)
    assert (made.batch["advantages"] * made.batch["response_mask"]).abs().sum() > 0


@pytest.mark.timeout(300)
def test_the_command_reaches_verls_trainer_with_the_configuration(tmp_path: Path) -> None:
    variables = os.environ | verl_grpo.variables("http://127.0.0.1:1", tmp_path)
    command = [*verl_grpo.command(["--cfg", "job", "trainer.total_epochs=7"])]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "default_agent_loop: ors" in done.stdout
    assert "total_epochs: 7" in done.stdout


def test_without_a_gpu_it_says_so_in_a_line() -> None:
    with pytest.raises(SystemExit, match=r"needs a GPU.* examples\.training\.verl_small"):
        verl_grpo.main([])
