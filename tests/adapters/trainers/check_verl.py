"""verl's own agent loop worker on our environments, with a token server that samples by a script."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import verl
from omegaconf import OmegaConf
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.trainer.ppo import metric_utils, ray_trainer
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.workers.rollout.replica import TokenOutput

import ors.adapters.verl_grpo
from ors.adapters.training import MostFailed, recent
from tests.support.outcome_cases import Case, check
from tests.support.parameters import SUMS
from tests.support.tiny_model import called, tiny_model, tiny_processor, tiny_tokenizer
from tests.support.training_environment import hunt_elsewhere

RIGHT, WRONG = (called("guess", number=3),), (called("guess", number=4),)
CRASH, SHRUG = (called("crash"),), (called("shrug"),)
LOOP = """
- name: ors
  _target_: ors.adapters.verl.ORSAgentLoop
  base_url: {url}
  environment: {environment}
  arguments:
    reward: sum
    limits:
      _target_: ors.rollouts.EpisodeLimits
      turns: 4
"""


@pytest.fixture(autouse=True)
def new_process() -> None:
    """As if nothing had been played before."""
    recent.cache_clear()


class TokenServer:
    """Samples the replies of a script, one after the other for each request; notes what it was sent."""

    def __init__(self, tokenizer: Any, scripts: Sequence[Sequence[str]]) -> None:
        self.tokenizer = tokenizer
        self.scripts = list(scripts)
        self.requests: dict[str, Sequence[str]] = {}
        self.sampled: dict[str, list[list[int]]] = {}
        self.prompts: dict[str, list[list[int]]] = {}
        self.images: list[Any] = []
        self.before_reply: Callable[[int], object] = lambda turn: None

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **rest: Any
    ) -> TokenOutput:
        if request_id not in self.requests:
            self.requests[request_id] = self.scripts[len(self.requests) % len(self.scripts)]
        script = self.requests[request_id]
        sampled = self.sampled.setdefault(request_id, [])
        self.prompts.setdefault(request_id, []).append(list(prompt_ids))
        self.images.append(rest.get("image_data"))
        self.before_reply(len(sampled))
        text = script[len(sampled)]
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        sampled.append(ids)
        logprobs = [-0.5] * len(ids) if sampling_params["logprobs"] else None
        stop = "completed" if text.endswith("<|im_end|>") else "length"
        return TokenOutput(token_ids=ids, log_probs=logprobs, stop_reason=stop)


Rollout = Callable[..., Any]


@pytest.fixture
def rollout(tmp_path: Path) -> Rollout:
    """Lets a worker of verl play one group with a script for each of its rollouts."""
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    tiny_model().save_pretrained(tmp_path / "model")

    async def played(
        url: str,
        scripts: Sequence[Sequence[str]],
        split: str = "train",
        environment: str = "hunt",
        processor: Any = None,
        arguments: str = "",
        estimator: str = "grpo_ors",
        **rollout: Any,
    ) -> tuple[DataProto, TokenServer]:
        written = LOOP.format(url=url, environment=environment) + "".join(
            f"    {line}\n" for line in arguments.splitlines()
        )
        (tmp_path / "loop.yaml").write_text(written)
        config = OmegaConf.load(Path(verl.__file__).parent / "trainer/config/_generated_ppo_trainer.yaml")
        config.actor_rollout_ref.model.path = str(tmp_path / "model")
        settings = {
            "prompt_length": 3000,
            "response_length": 1000,
            "calculate_log_probs": True,
            "name": "vllm",
        }
        config.actor_rollout_ref.rollout.update(settings | rollout)
        config.actor_rollout_ref.rollout.multi_turn.format = "hermes"
        config.algorithm.adv_estimator = estimator
        config.actor_rollout_ref.rollout.agent.agent_loop_config_path = str(tmp_path / "loop.yaml")
        server = TokenServer(tiny_tokenizer(), scripts)
        server.before_reply = before_reply[0] if before_reply else server.before_reply
        worker = AgentLoopWorker(config, llm_client=server)
        if processor is not None:  # as if the model had vision
            worker.processor, worker.tokenizer = processor, processor.tokenizer
            worker.hf_model_type = "qwen2_5_vl"
        count = len(scripts)
        rows: dict[str, list[Any]] = {
            "raw_prompt": [[{"role": "user", "content": "ignored"}]] * count,
            "extra_info": [{"split": split, "index": 3}] * count,
            "agent_name": ["ors"] * count,
            "uid": ["a"] * count,
            "global_steps": [5] * count,
        }
        batch = {key: np.array([None] * count, dtype=object) for key in rows}
        for key, values in rows.items():
            for number, value in enumerate(values):
                batch[key][number] = value
        done = await worker.generate_sequences(DataProto(non_tensor_batch=batch, meta_info={}))
        return done, server

    before_reply: list[Callable[[int], object]] = []
    played.before_reply = before_reply  # type: ignore[attr-defined]
    return played


def advantages(done: DataProto, estimator: str = "grpo_ors") -> torch.Tensor:
    """The advantages that verl's trainer computes: one a rollout."""
    done.batch["token_level_rewards"] = done.batch["rm_scores"]
    made = compute_advantage(done, estimator, config=OmegaConf.create({"norm_adv_by_std_in_grpo": True}))
    mask = made.batch["response_mask"]
    return (made.batch["advantages"] * mask).sum(-1) / mask.sum(-1).clamp(min=1)


async def test_ids_masks_and_logprobs_are_those_that_were_sampled(url: str, rollout: Rollout) -> None:
    hinted = (called("hint"), called("guess", number=3))
    done, server = await rollout(url, [hinted])
    (request,) = server.requests
    ids, mask = done.batch["responses"][0], done.batch["response_mask"][0].bool()
    assert ids[mask].tolist() == [id for ids in server.sampled[request] for id in ids]
    assert done.batch["rollout_log_probs"][0][mask].tolist() == [-0.5] * int(mask.sum())
    # What the model read for its second reply is what is trained on, token for token.
    whole = done.batch["input_ids"][0][done.batch["attention_mask"][0].bool()].tolist()
    second = server.prompts[request][1]
    assert whole[: len(second)] == second
    assert whole[len(second) :] == server.sampled[request][1]
    text = server.tokenizer.decode(second)
    assert "Guess 3." in text
    assert "<tool_response>\nRead the prompt.\n</tool_response>" in text


async def test_secrets_come_from_variables(
    url: str, rollout: Rollout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUNT_KEY", "sesame")
    done, _ = await rollout(url, [RIGHT, WRONG], environment="locked\n  secrets: [hunt_key]")
    assert done.batch["rm_scores"].sum() == 1.0


async def test_a_server_with_parameters_is_started_for_it(rollout: Rollout) -> None:
    started = f"{{_target_: ors.adapters.serve, target: '{SUMS}', config: {{difficulty: 5, words: [a]}}}}"
    scripts = [(called("submit", answer=answer),) for answer in (3 + 5, 3)]
    done, _ = await rollout(started, scripts, environment="sums")
    assert done.batch["rm_scores"].sum() == 1.0


async def test_the_reward_is_reduced_and_stands_at_the_last_token(url: str, rollout: Rollout) -> None:
    done, _ = await rollout(url, [(called("hint"), called("guess", number=3)), WRONG])
    rewards = done.batch["rm_scores"].sum(-1).tolist()
    assert sorted(rewards) == [0.0, 1.25]
    row = rewards.index(1.25)
    last = int(done.batch["response_mask"][row].nonzero()[-1])
    assert done.batch["rm_scores"][row, last] == 1.25
    assert done.non_tensor_batch["tool_rewards"][row] == [0.25, 1.0]
    assert done.non_tensor_batch["ors_calls"][row] == 2


@pytest.mark.parametrize("bad", [CRASH, SHRUG], ids=["raises", "no-reward"])
async def test_an_episode_without_reward_is_in_neither_gradient_nor_baseline(
    url: str, rollout: Rollout, bad: Sequence[str]
) -> None:
    with_bad, _ = await rollout(url, [RIGHT, RIGHT, WRONG, bad], arguments="unscored_reward: null")
    without, _ = await rollout(url, [RIGHT, RIGHT, WRONG])
    (row,) = [n for n, outcome in enumerate(with_bad.non_tensor_batch["ors_outcome"]) if outcome != "scored"]
    assert not with_bad.batch["response_mask"][row].any()
    made = advantages(with_bad)
    assert made[row] == 0.0
    live = torch.cat([made[:row], made[row + 1 :]])
    assert torch.allclose(live.sort().values, advantages(without).sort().values)


async def test_the_only_episode_that_is_left_of_a_group_is_not_trained_on(url: str, rollout: Rollout) -> None:
    done, _ = await rollout(url, [RIGHT, CRASH])
    assert advantages(done).tolist() == [0.0, 0.0]


async def test_a_group_whose_setups_fail_is_masked(url: str, rollout: Rollout) -> None:
    done, server = await rollout(url, [(), ()], split="broken")
    assert not done.batch["response_mask"].any()
    assert advantages(done).tolist() == [0.0, 0.0]
    assert not server.requests
    assert list(done.non_tensor_batch["ors_outcome"]) == ["failed", "failed"]
    # verl's trainer makes numbers of these: without them, it would end here.
    assert list(done.non_tensor_batch["min_global_steps"]) == [4, 4]
    assert list(done.non_tensor_batch["max_global_steps"]) == [4, 4]


async def test_a_server_that_is_killed_leaves_its_episodes_out(rollout: Rollout) -> None:
    with hunt_elsewhere() as (process, address):

        def kill(turn: int) -> None:
            if turn == 1:
                process.kill()
                process.wait()

        rollout.before_reply.append(kill)  # type: ignore[attr-defined]
        hinted = (called("hint"), called("guess", number=3))
        done, _ = await rollout(address, [hinted], arguments="retries: 0")
    assert not done.batch["response_mask"].any()


async def test_an_episode_that_the_infrastructure_lost_is_played_again(rollout: Rollout) -> None:
    with ExitStack() as servers:
        process, address = servers.enter_context(hunt_elsewhere())

        def restart(turn: int) -> None:
            if turn == 1 and process.poll() is None:
                process.kill()
                process.wait()
                servers.enter_context(hunt_elsewhere(address.rpartition(":")[2]))

        rollout.before_reply.append(restart)  # type: ignore[attr-defined]
        hinted = (called("hint"), called("guess", number=3))
        done, server = await rollout(address, [hinted])
    assert done.batch["rm_scores"].sum() == 1.25
    # What was sampled in the first attempt is not trained on.
    ids, mask = done.batch["responses"][0], done.batch["response_mask"][0].bool()
    assert ids[mask].tolist() == [id for ids in list(server.sampled.values())[1] for id in ids]


async def test_finished_ends_the_episode(url: str, rollout: Rollout) -> None:
    done, server = await rollout(url, [(called("guess", number=3), called("guess", number=3))])
    assert [len(sampled) for sampled in server.sampled.values()] == [1]
    assert done.batch["rm_scores"].sum() == 1.0


async def test_a_response_that_is_too_long_is_truncated_and_has_no_reward(url: str, rollout: Rollout) -> None:
    done, _ = await rollout(url, [(called("hint"),) * 4], response_length=100)
    assert list(done.non_tensor_batch["ors_outcome"]) == ["truncated"]
    assert done.batch["responses"].shape[1] == 100
    assert done.batch["rm_scores"].sum() == 0.25


async def test_a_failing_token_server_is_no_failure_of_the_environment(url: str, rollout: Rollout) -> None:
    def fail(turn: int) -> None:
        raise OSError("no GPU")

    rollout.before_reply.append(fail)  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="no GPU"):
        await rollout(url, [RIGHT])


async def test_images_of_the_prompt_and_of_results_reach_the_model(url: str, rollout: Rollout) -> None:
    processor = tiny_processor()
    looks = (called("look"), called("guess", number=3))
    done, server = await rollout(url, [looks], environment="gallery", processor=processor)
    assert [len(images) for images in server.images] == [1, 2]
    assert all(image.getpixel((0, 0)) == (255, 0, 0) for image in server.images[1])
    (first, second) = server.prompts.popitem()[1]
    assert [ids.count(processor.image_token_id) for ids in (first, second)] == [1, 2]
    # The pixels are trained with, and what was sampled is still exact.
    assert len(done.non_tensor_batch["multi_modal_inputs"][0]["image_grid_thw"]) == 2
    ids, mask = done.batch["responses"][0], done.batch["response_mask"][0].bool()
    assert ids[mask].tolist() == [id for each in server.sampled.popitem()[1] for id in each]
    assert done.batch["rm_scores"].sum() == 1.0


async def test_images_for_a_model_without_vision_are_an_error(url: str, rollout: Rollout) -> None:
    with pytest.raises(RuntimeError, match="Multimodal inputs require"):
        await rollout(url, [(called("look"), called("guess", number=3))])


async def test_a_group_with_two_crashes_has_the_advantages_of_the_others(url: str, rollout: Rollout) -> None:
    done, _ = await rollout(url, [RIGHT, RIGHT, WRONG, RIGHT, CRASH, CRASH, WRONG, WRONG])
    # Of six: the mean is 0.5, the deviation sqrt(6 * 0.25 / 5) = 0.5477, and 0.5 / 0.5477 = 0.9129.
    up, down = 0.9129, -0.9129
    expected = {1.0: up, 0.0: down}
    live = done.batch["response_mask"].bool().any(-1)
    scores = done.batch["rm_scores"].sum(-1).tolist()
    made = advantages(done).tolist()
    by_hand = [expected[score] if alive else 0.0 for score, alive in zip(scores, live.tolist(), strict=True)]
    assert made == pytest.approx(by_hand, abs=1e-4)
    assert int(live.sum()) == 6


async def test_the_metrics_of_verl_are_those_of_episodes_with_a_reward(url: str, rollout: Rollout) -> None:
    done, _ = await rollout(url, [RIGHT, RIGHT, RIGHT, WRONG, CRASH, CRASH, CRASH, CRASH])
    advantages(done)
    done.batch["token_level_scores"] = done.batch["rm_scores"]
    metrics = ray_trainer.compute_data_metrics(done, use_critic=False)
    assert (metrics["critic/score/mean"], metrics["critic/rewards/mean"]) == (0.75, 0.75)
    assert (metrics["ors/left_out"], metrics["ors/failed_environment"]) == (0.5, 0.5)
    assert metric_utils.compute_data_metrics is ors.adapters.verl_grpo.compute_data_metrics


async def test_a_step_in_which_every_episode_failed_ends_the_training(url: str, rollout: Rollout) -> None:
    done, _ = await rollout(url, [CRASH, CRASH])
    assert advantages(done).tolist() == [0.0, 0.0]
    done.batch["token_level_scores"] = done.batch["rm_scores"]
    with pytest.raises(MostFailed, match="all 2 rollouts of this step are left out"):
        ray_trainer.compute_data_metrics(done, use_critic=False)


async def test_a_worker_whose_episodes_are_mostly_lost_ends_the_training(rollout: Rollout) -> None:
    with pytest.raises(MostFailed, match=r"8 of the 8 episodes .* infrastructure, at the stage 'opening'"):
        await rollout("http://127.0.0.1:9", [RIGHT] * 8, arguments="retries: 0")


async def test_a_wrong_environment_ends_the_training_with_its_name(url: str, rollout: Rollout) -> None:
    with pytest.raises(RuntimeError, match=r"NotFound: Unknown environment; .*\(environment 'hnut'\)"):
        await rollout(url, [RIGHT], environment="hnut")


async def test_why_an_episode_failed_is_logged(
    url: str, rollout: Rollout, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "ors.adapters"):
        await rollout(url, [CRASH])
    assert "failed: environment, at the stage 'call', ToolFailed: " in caplog.text


async def test_a_crash_can_be_made_a_loss(url: str, rollout: Rollout) -> None:
    done, _ = await rollout(url, [RIGHT, CRASH], arguments="failed_reward: {environment: -1.0}")
    assert sorted(done.batch["rm_scores"].sum(-1).tolist()) == [-1.0, 1.0]
    assert done.batch["response_mask"].bool().any(-1).all()


async def test_giving_up_is_a_loss(url: str, rollout: Rollout) -> None:
    done, _ = await rollout(url, [RIGHT, ("I give up.<|im_end|>",)], arguments="unscored_reward: -0.5")
    assert sorted(done.batch["rm_scores"].sum(-1).tolist()) == [-0.5, 1.0]


@pytest.mark.parametrize(
    "bad",
    [
        f"<tool_call>{'[' * 600}</tool_call>",
        "<tool_call>guess 3</tool_call>",
        '<tool_call>{"name": "guess", "arguments": "[3]"}</tool_call>',
        '<tool_call>{"name": "guess", "arguments": {"number": "\\ud83d"}}</tool_call>',
        '<tool_call>{"name": "\\ud83d", "arguments": {}}</tool_call>',
    ],
    ids=["deep", "no-json", "no-object", "half-a-character", "half-a-name"],
)
async def test_a_call_that_cannot_be_read_goes_back_to_the_model(
    url: str, rollout: Rollout, bad: str
) -> None:
    done, server = await rollout(url, [(f"{bad}<|im_end|>", *RIGHT)])
    assert done.batch["rm_scores"].sum() == 1.0
    ((_, second),) = server.prompts.values()
    assert server.tokenizer.decode(second).count("<tool_response>") == 1


async def test_a_reply_that_is_cut_off_truncates_and_is_not_graded(url: str, rollout: Rollout) -> None:
    cut = ("It is 3, and because",)
    done, _ = await rollout(url, [cut, cut], environment="essay", arguments="truncated_reward: -1.0")
    assert list(done.non_tensor_batch["ors_outcome"]) == ["truncated"] * 2
    assert done.batch["rm_scores"].sum(-1).tolist() == [-1.0, -1.0]
    # A server that does not say so: the reply is as long as it may be.
    long = ("It is 3" + "." * 393 + "<|im_end|>",)
    done, _ = await rollout(url, [long], environment="essay", max_model_len=3000)
    assert list(done.non_tensor_batch["ors_outcome"]) == ["scored"]
    done, _ = await rollout(url, [long], environment="essay", max_model_len=1000)
    assert list(done.non_tensor_batch["ors_outcome"]) == ["truncated"]


@pytest.mark.parametrize("estimator", ["grpo", "rloo"])
async def test_an_estimator_that_counts_failures_as_0_is_refused(
    url: str, rollout: Rollout, estimator: str
) -> None:
    with pytest.raises(ValueError, match=f"adv_estimator={estimator} counts episodes without a reward as 0"):
        await rollout(url, [RIGHT], estimator=estimator)


@pytest.mark.parametrize("estimator", ["gae", "reinforce_plus_plus", "one_of_the_users_own"])
async def test_an_estimator_that_leaves_failures_out_may_be_used(
    url: str, rollout: Rollout, estimator: str
) -> None:
    done, _ = await rollout(url, [RIGHT], estimator=estimator)
    assert done.batch["rm_scores"].sum() == 1.0


def test_every_outcome_counts_as_the_table_says(url: str, rollout: Rollout) -> None:
    async def played(environment: str, case: Case, arguments: str) -> float | None:
        script = [each.hermes() for each in case.replies]
        done, _ = await rollout(url, [script], environment=environment, arguments=arguments)
        return float(done.batch["rm_scores"].sum()) if done.batch["response_mask"].any() else None

    def play(
        url: str, environment: str, cases: Sequence[Case], options: Mapping[str, Any]
    ) -> Sequence[float | None]:
        arguments = "\n".join(f"{name}: {value}" for name, value in options.items() if name != "reward")
        return [asyncio.run(played(environment, case, arguments)) for case in cases]

    check(url, play)


async def test_named_rewards_are_columns_of_the_batch_and_metrics_of_the_step(
    url: str, rollout: Rollout
) -> None:
    hinted = (called("hint"), called("guess", number=3))
    done, _ = await rollout(url, [CRASH, hinted, WRONG, SHRUG], environment="parts")
    assert sorted(done.meta_info["reward_extra_keys"]) == ["correct", "format"]
    tensor, extra = ray_trainer.extract_reward(done)
    rows = zip(tensor.sum(-1).tolist(), extra["correct"].tolist(), extra["format"].tolist(), strict=True)
    assert sorted(rows) == [(0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (0.5, 0.0, 0.5), (1.75, 1.0, 0.75)]
    advantages(done)
    done.batch["token_level_scores"] = done.batch["rm_scores"]
    metrics = ray_trainer.compute_data_metrics(done, use_critic=False)
    assert metrics["ors/reward/correct"] == pytest.approx(1 / 3)
    assert metrics["ors/reward/format"] == pytest.approx(1.25 / 3)


async def test_rewards_that_are_not_declared_are_no_columns(url: str, rollout: Rollout) -> None:
    done, _ = await rollout(url, [RIGHT, WRONG])
    assert done.meta_info["reward_extra_keys"] == []
    assert done.non_tensor_batch["ors_components"].tolist() == [{}, {}]
