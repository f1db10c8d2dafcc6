"""SkyRL's own generator and advantages on our environments, with an engine that samples by a script."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from skyrl.backends.skyrl_train.utils.ppo_utils import compute_grpo_outcome_advantage
from skyrl.train.config import GeneratorConfig, SkyRLGymConfig
from skyrl.train.config.config import ChatTemplateConfig, SamplingParams
from skyrl.train.generators.base import TrajectoryID
from skyrl.train.generators.utils import get_metrics_from_generator_output
from skyrl.train.utils.trainer_utils import validate_generator_output
from skyrl_gym.envs import registration

from ors.adapters.skyrl_generator import LEFT_OUT, ORSGymGenerator
from ors.adapters.training import MostFailed
from tests.support.outcome_cases import Case, check
from tests.support.tiny_model import called, tiny_tokenizer
from tests.support.training_environment import Hunt, hunt_elsewhere

RIGHT, WRONG = (called("guess", number=3),), (called("guess", number=4),)
BOOM, QUIT, SHRUG = (called("crash"),), ("I give up.<|im_end|>",), (called("shrug"),)
HINTS = (called("hint"),) * 30
LOOKS = (called("look"),) * 30
CUT = (called("hint"), "It is 3, and because", "never sampled")
DEEP = (f"<tool_call>{'[' * 3000}</tool_call><|im_end|>", *RIGHT)


class Engine:
    """Samples the replies of a script for each episode, told apart by its session."""

    def __init__(self, scripts: Sequence[Sequence[str]]) -> None:
        self.tokenizer = tiny_tokenizer()
        self.scripts = {f"a_{row}": script for row, script in enumerate(scripts)}
        self.turns: Counter[str] = Counter()
        self.finished: list[str] = []
        self.before_reply: Callable[[str, int], object] = lambda session, turn: None

    async def generate(self, batch: Any, model: Any = None) -> Any:
        (session,) = batch["session_ids"]
        turn = self.turns[session]
        self.turns[session] += 1
        self.before_reply(session, turn)
        text = self.scripts[session][turn]
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        stop = "stop" if text.endswith("<|im_end|>") else "length"
        return {
            "responses": [text.removesuffix("<|im_end|>")],
            "response_ids": [ids],
            "stop_reasons": [stop],
            "response_logprobs": [[-0.5] * len(ids)],
        }

    async def finish_session(self, session: str) -> None:
        self.finished.append(session)


def config(**fields: Any) -> GeneratorConfig:
    sampling = SamplingParams(max_generate_length=1000, logprobs=0)
    given = {"max_turns": 24, "max_input_length": 8000, "sampling_params": sampling} | fields
    return GeneratorConfig(**given)


async def generated(
    url: str,
    scripts: Sequence[Sequence[str]],
    engine: Engine | None = None,
    generator: Any = None,
    environment: str = "hunt",
    split: str = "train",
    reward: str = "sum",
    fields: dict[str, Any] | None = None,
    **arguments: Any,
) -> Any:
    """What SkyRL's trainer gets for one group, after its own check."""
    id = f"ors-generated-{len(registration.registry)}"
    kwargs = {"base_url": url, "environment": environment, "arguments": {"reward": reward} | arguments}
    registration.register(id, entry_point="ors.adapters.skyrl:ORSTextEnv", kwargs=kwargs)
    engine = engine or Engine(scripts)
    made = generator or ORSGymGenerator(config(**fields or {}), SkyRLGymConfig(), engine, engine.tokenizer)
    count = len(scripts)
    output = await made.generate(
        {
            "prompts": [[{"role": "user", "content": ""}]] * count,
            "env_classes": [id] * count,
            "env_extras": [{"extra_info": {"split": split, "index": 3}} for _ in range(count)],
            "trajectory_ids": [TrajectoryID("a", row) for row in range(count)],
        },
        disable_tqdm=True,
    )
    validate_generator_output(count, output, step_wise=False)
    return output


def totals(output: Any) -> list[float]:
    return [sum(each) for each in output["rewards"]]


def advantages(output: Any) -> list[float]:
    """The advantage of each row by SkyRL's GRPO; 0 for a masked one, which is in no gradient."""
    rewards = torch.tensor([[total] for total in totals(output)])
    made, _ = compute_grpo_outcome_advantage(
        rewards, torch.ones_like(rewards), np.array(["a"] * len(rewards))
    )
    live = torch.tensor([float(any(mask)) for mask in output["loss_masks"]])
    found: list[float] = (made[:, 0] * live).tolist()
    return found


async def test_a_crash_is_masked_and_the_others_have_the_baseline_that_they_have_without_it(url: str) -> None:
    output = await generated(url, [RIGHT, RIGHT, WRONG, RIGHT, BOOM, BOOM, WRONG, WRONG])
    # Of six: the mean is 0.5, the deviation sqrt(6 * 0.25 / 5) = 0.5477, and 0.5 / 0.5477 = 0.9129.
    up, down = 0.9129, -0.9129
    assert advantages(output) == pytest.approx([up, up, down, up, 0, 0, down, down], abs=1e-4)
    assert [reason == LEFT_OUT for reason in output["stop_reasons"]] == [row in (4, 5) for row in range(8)]
    assert output["rollout_metrics"]["ors/left_out"] == 0.25
    assert output["rollout_metrics"]["ors/failed_environment"] == 0.25
    score = get_metrics_from_generator_output(output, ["a"] * 8)
    assert (score["avg_score"], score["pass_at_n"]) == (pytest.approx(0.5), 1.0)


async def test_one_crash_keeps_the_mean_of_the_others(url: str) -> None:
    output = await generated(url, [RIGHT, WRONG, WRONG, BOOM])
    assert totals(output)[3] == pytest.approx(1 / 3)
    # The deviation is over four rows instead of three: sqrt(2/3 / 3) = 0.4714.
    assert advantages(output) == pytest.approx([1.4142, -0.7071, -0.7071, 0], abs=1e-4)


async def test_the_only_episode_that_is_left_is_not_trained_on(url: str) -> None:
    assert advantages(await generated(url, [RIGHT, BOOM, BOOM])) == pytest.approx([0, 0, 0], abs=1e-4)


async def test_giving_up_is_a_loss_and_can_be_left_out(url: str) -> None:
    output = await generated(url, [RIGHT, QUIT, SHRUG])
    assert totals(output) == [1.0, 0.0, 0.0]
    assert all(map(any, output["loss_masks"]))
    output = await generated(url, [RIGHT, WRONG, QUIT, SHRUG], unscored_reward=None)
    assert [any(mask) for mask in output["loss_masks"]] == [True, True, False, False]
    assert output["rollout_metrics"]["ors/left_out"] == 0.5


async def test_a_crash_can_be_made_a_loss(url: str) -> None:
    output = await generated(url, [RIGHT, BOOM], failed_reward={"environment": -1.0})
    assert totals(output) == [1.0, -1.0]
    assert all(map(any, output["loss_masks"]))


@pytest.mark.parametrize("reward", ["sum", "last", "max"])
async def test_an_episode_that_is_cut_off_at_the_input_limit_keeps_what_it_earned(
    url: str, reward: str
) -> None:
    engine, fields = Engine([HINTS]), {"max_input_length": 1600}
    output = await generated(url, [HINTS], engine, reward=reward, fields=fields, truncated_reward=-1.0)
    assert output["stop_reasons"] == ["length"]
    assert engine.turns["a_0"] > 1
    assert totals(output) == [0.25 * engine.turns["a_0"] if reward == "sum" else 0.25]
    assert output["rollout_metrics"]["ors/truncated"] == 1.0


async def test_an_episode_that_is_cut_off_without_a_reward_has_the_one_for_that(url: str) -> None:
    fields = {"max_input_length": 1600}
    output = await generated(url, [LOOKS], fields=fields, truncated_reward=-0.5)
    assert (totals(output), output["stop_reasons"]) == ([-0.5], ["length"])
    output = await generated(url, [LOOKS, RIGHT, WRONG], fields=fields, truncated_reward=None)
    assert [any(mask) for mask in output["loss_masks"]] == [False, True, True]
    output = await generated(url, [RIGHT], fields=fields, truncated_reward=-0.5)
    assert totals(output) == [1.0]


async def test_a_prompt_that_is_over_the_input_limit_is_masked(url: str) -> None:
    output = await generated(url, [RIGHT, RIGHT], fields={"max_input_length": 10})
    assert not any(map(any, output["loss_masks"]))
    assert output["rollout_metrics"]["ors/truncated"] == 1.0


async def test_max_turns_truncates(url: str) -> None:
    engine = Engine([HINTS])
    output = await generated(url, [HINTS], engine, fields={"max_turns": 4})
    assert engine.turns["a_0"] == 4
    assert totals(output) == [1.0]


async def test_a_reply_that_is_cut_off_truncates_and_is_not_graded(url: str) -> None:
    output = await generated(url, [CUT, CUT[1:]], environment="essay", truncated_reward=-1.0)
    assert totals(output) == [0.25, -1.0]
    assert output["rollout_metrics"]["ors/truncated"] == 1.0


async def test_a_call_that_cannot_be_read_goes_back_to_the_model(url: str) -> None:
    assert totals(await generated(url, [DEEP])) == [1.0]


async def test_an_episode_that_the_infrastructure_lost_is_played_again() -> None:
    engine = Engine([(called("hint"), called("hint"), *RIGHT)])
    with ExitStack() as servers:
        process, address = servers.enter_context(hunt_elsewhere())

        def restart(session: str, turn: int) -> None:
            if turn == 1:
                process.kill()
                process.wait()
                servers.enter_context(hunt_elsewhere(address.rpartition(":")[2]))

        engine.before_reply = restart
        output = await generated(address, [()], engine)
    # A hint, another that is lost with the server, and the right number in a new session.
    assert engine.turns["a_0"] == 3
    assert totals(output) == [1.0]


async def test_a_wrong_environment_ends_the_training_with_its_name(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, "ors.adapters"),
        pytest.raises(MostFailed, match=r"8 of the 8 episodes .*Unknown environment.*'hnut'"),
    ):
        await generated(url, [RIGHT] * 8, environment="hnut")
    assert "8 of 8 episodes failed: infrastructure, at the stage 'opening', NotFound" in caplog.text


async def test_a_task_that_is_broken_alone_does_not_end_the_training(url: str) -> None:
    output = await generated(url, [RIGHT, RIGHT], split="broken")
    assert not any(map(any, output["loss_masks"]))


async def test_an_engine_that_fails_leaves_no_session(url: str) -> None:
    engine = Engine([RIGHT])

    def fail(session: str, turn: int) -> None:
        assert Hunt.count["open"] == 1
        raise OSError("no GPU")

    engine.before_reply = fail
    with pytest.raises(OSError, match="no GPU"):
        await generated(url, [RIGHT], engine)
    assert engine.finished == ["a_0"]
    assert Hunt.count["open"] == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"batched": True},
        {"step_wise_trajectories": True},
        {"chat_template": ChatTemplateConfig(source="name", name_or_path="qwen3_with_thinking")},
    ],
    ids=["batched", "steps", "template"],
)
async def test_modes_in_which_an_episode_is_not_one_row_of_its_turns_are_refused(
    fields: dict[str, Any],
) -> None:
    engine = Engine([])
    with pytest.raises(ValueError, match=r"set generator\.batched=false"):
        ORSGymGenerator(config(**fields), SkyRLGymConfig(), engine, engine.tokenizer)


def test_every_outcome_counts_as_the_table_says(url: str) -> None:
    def play(
        url: str, environment: str, cases: Sequence[Case], options: Mapping[str, Any]
    ) -> Sequence[float | None]:
        scripts = [[each.hermes() for each in case.replies] for case in cases]
        output = asyncio.run(generated(url, scripts, environment=environment, **options))
        left_out = [reason == LEFT_OUT for reason in output["stop_reasons"]]
        return [None if out else total for out, total in zip(left_out, totals(output), strict=True)]

    check(url, play)


async def test_the_metrics_of_the_step_have_the_named_rewards(url: str) -> None:
    hinted = (called("hint"), *RIGHT)
    output = await generated(url, [hinted, WRONG, SHRUG, BOOM], environment="parts")
    metrics = output["rollout_metrics"]
    assert metrics["environment/reward"] == pytest.approx(2.25 / 3)
    assert metrics["environment/reward/correct"] == pytest.approx(1 / 3)
    assert metrics["environment/reward/format"] == pytest.approx(1.25 / 3)
    assert output["env_metrics"][0] == {"reward": 1.75, "reward/format": 0.75, "reward/correct": 1.0}
    assert output["env_metrics"][3] == {}
