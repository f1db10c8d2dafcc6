"""Tinker's own rollout of groups on our environments, with a completer that samples by a script."""

import asyncio
import io
import pickle
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image
from tinker.types import ImageChunk
from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.exceptions import AllTrajectoriesFailedError
from tinker_cookbook.renderers.qwen3 import Qwen3InstructRenderer, Qwen3VLInstructRenderer
from tinker_cookbook.rl.data_processing import compute_advantages, trajectory_to_data
from tinker_cookbook.rl.metric_util import compute_trajectory_metrics
from tinker_cookbook.rl.rollout_strategy import MinViableGroup, RetryOnFailure
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.rl.types import TrajectoryGroup

from ors.adapters import serve
from ors.adapters.tinker import ORSGroupBuilder, TrainingFailed
from ors.adapters.training import NoReward, recent
from tests.support.outcome_cases import Case, check
from tests.support.parameters import SUMS
from tests.support.tiny_model import called, tiny_processor, tiny_tokenizer
from tests.support.training_environment import Hunt, hunt_elsewhere

RIGHT, WRONG = (called("guess", number=3),), (called("guess", number=4),)
HINTED = (called("hint"), called("guess", number=3))
CRASH, SHRUG = (called("crash"),), (called("shrug"),)


class Inline(ThreadPoolExecutor):
    """Renders prompts on the loop's own thread: a tokenizer of transformers is not safe in two."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


@pytest.fixture(autouse=True)
async def one_thread() -> None:
    recent.cache_clear()  # as if nothing had been played before
    asyncio.get_running_loop().set_default_executor(Inline())


class Script(TokenCompleter):
    """Samples the replies of a script for each rollout, told apart by who comes first."""

    def __init__(self, *scripts: Sequence[str]) -> None:
        self.tokenizer = tiny_tokenizer()
        self.scripts = list(scripts)
        self.later: Sequence[str] = max(scripts, key=len, default=())
        self.cut_says = "length"
        self.sampled: list[list[int]] = []
        self.prompts: list[list[int]] = []
        self.before_reply: Callable[[int], object] = lambda turn: None

    async def __call__(self, model_input: Any, stop: Any, *, max_tokens: int | None = None) -> Any:
        prompt = model_input.to_ints()
        turn = self.tokenizer.decode(prompt).count("<tool_response>")
        self.before_reply(turn)
        text = self.scripts.pop(0)[0] if turn == 0 else self.later[turn]
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        self.sampled.append(ids)
        self.prompts.append(prompt)
        stop = "stop" if text.endswith("<|im_end|>") else self.cut_says
        return TokensWithLogprobs(tokens=ids, maybe_logprobs=[-0.5] * len(ids), stop_reason=stop)


def group(url: str, size: int, split: str = "train", **arguments: Any) -> ORSGroupBuilder:
    """The builder of a group, as it arrives in another process."""
    renderer = Qwen3InstructRenderer(tiny_tokenizer())
    return ORSGroupBuilder(
        url,
        "hunt",
        split,
        3,
        renderer,
        size,
        {"reward": "sum"} | arguments,
    )


def advantages(made: TrajectoryGroup) -> list[float]:
    (found,) = compute_advantages([made])
    return sorted(found.tolist())


async def test_ids_and_masks_are_those_that_were_sampled(url: str) -> None:
    policy = Script(HINTED)
    made = await do_group_rollout(group(url, 1), policy)
    (trajectory,) = made.trajectories_G
    assert [each.ac.tokens for each in trajectory.transitions] == policy.sampled
    # The second prompt begins with the first and its reply, token for token: all is one sequence.
    (datum,) = trajectory_to_data(trajectory, 1.0)
    whole = [*datum.model_input.to_ints(), datum.loss_fn_inputs["target_tokens"].data[-1]]
    assert whole == policy.prompts[1] + policy.sampled[1]
    mask = torch.tensor(datum.loss_fn_inputs["mask"].data).bool()
    targets = torch.tensor(datum.loss_fn_inputs["target_tokens"].data)
    assert targets[mask].tolist() == policy.sampled[0] + policy.sampled[1]
    assert "Guess 3." in policy.tokenizer.decode(policy.prompts[0])
    assert '"name": "guess"' in policy.tokenizer.decode(policy.prompts[0])


async def test_each_step_has_its_reward_and_finished_ends_the_episode(url: str) -> None:
    made = await do_group_rollout(group(url, 1), Script(HINTED))
    assert [each.reward for each in made.trajectories_G[0].transitions] == [0.25, 1.0]
    assert made.trajectories_G[0].transitions[-1].episode_done


async def test_secrets_come_from_variables(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUNT_KEY", "sesame")
    locked = replace(group(url, 1), environment="locked", secrets=["hunt_key"])
    made = await do_group_rollout(locked, Script(RIGHT))
    assert made.get_total_rewards() == [1.0]


async def test_a_server_with_parameters_is_started_for_it() -> None:
    five = replace(group(serve(SUMS, {"difficulty": 5}), 1), environment="sums")
    made = await do_group_rollout(five, Script((called("submit", answer=3 + 5),)))
    assert made.get_total_rewards() == [1.0]


@pytest.mark.parametrize(("reward", "paid"), [("last", [0.25, -0.25]), ("max", [0.25, 0.0])])
async def test_the_steps_so_far_have_paid_what_the_episode_counts_as_if_it_is_cut_off(
    url: str, reward: str, paid: list[float]
) -> None:
    made = await do_group_rollout(group(url, 1, reward=reward), Script((called("hint"), *WRONG)))
    assert [each.reward for each in made.trajectories_G[0].transitions] == paid


@pytest.mark.parametrize("bad", [CRASH, SHRUG], ids=["raises", "no-reward"])
async def test_an_episode_without_reward_is_in_neither_gradient_nor_baseline(
    url: str, bad: Sequence[str]
) -> None:
    strategy = MinViableGroup(min_successful=3, max_retries=0)
    four = group(url, 4, unscored_reward=None)
    with_bad = await do_group_rollout(four, Script(RIGHT, RIGHT, WRONG, bad), strategy)
    without = await do_group_rollout(group(url, 3), Script(RIGHT, RIGHT, WRONG))
    assert len(with_bad.trajectories_G) == 3
    assert [error.error_type for error in with_bad.rollout_errors] == [NoReward.__name__]
    assert advantages(with_bad) == advantages(without)


async def test_an_episode_that_failed_is_played_again(url: str) -> None:
    policy = Script(RIGHT, CRASH, RIGHT, RIGHT)
    made = await do_group_rollout(group(url, 2), policy, RetryOnFailure(max_retries=1))
    assert made.get_total_rewards() == [1.0, 1.0]


async def test_a_setup_that_fails_drops_the_group(url: str) -> None:
    with pytest.raises(AllTrajectoriesFailedError):
        await do_group_rollout(group(url, 2, split="broken"), Script(), MinViableGroup(max_retries=0))


async def test_a_server_that_is_killed_drops_its_episodes() -> None:
    with hunt_elsewhere() as (process, address):

        def kill(turn: int) -> None:
            if turn == 1:
                process.kill()
                process.wait()

        policy = Script(HINTED)
        policy.before_reply = kill
        with pytest.raises(NoReward, match="infrastructure"):
            await do_group_rollout(group(address, 1), policy)


async def test_an_episode_that_the_trainer_cuts_off_is_closed(url: str) -> None:
    builder = group(url, 1)
    (env,) = await builder.make_envs()
    await env.initial_observation()
    assert Hunt.count["open"] == 1
    await builder.cleanup()
    assert Hunt.count["open"] == 0


async def test_sigterm_ends_the_trainer_so_that_groups_are_cleaned_up(url: str) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        builder = group(url, 1)
        await builder.make_envs()
        handler = signal.getsignal(signal.SIGTERM)
        assert callable(handler)
        with pytest.raises(SystemExit):
            handler(signal.SIGTERM, None)
        await builder.cleanup()
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_a_builder_can_be_pickled(url: str) -> None:
    builder = group(url, 1)
    renderer, builder.renderer = builder.renderer, None  # ours has a tokenizer without a name
    copy = pickle.loads(pickle.dumps(builder))
    copy.renderer = renderer
    made = await do_group_rollout(copy, Script(RIGHT))
    assert made.get_total_rewards() == [1.0]
    copy.renderer = None
    assert pickle.loads(pickle.dumps(copy)).index == 3


class Looking(TokenCompleter):
    """Looks at the picture of the environment, then guesses; keeps the images that it was shown."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.shown: list[list[ImageChunk]] = []

    async def __call__(self, model_input: Any, stop: Any, *, max_tokens: int | None = None) -> Any:
        text = (called("look"), called("guess", number=3))[len(self.shown)]
        self.shown.append([chunk for chunk in model_input.chunks if isinstance(chunk, ImageChunk)])
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return TokensWithLogprobs(tokens=ids, maybe_logprobs=[-0.5] * len(ids))


async def test_images_of_the_prompt_and_of_results_reach_the_model(url: str) -> None:
    processor = tiny_processor()
    builder = group(url, 1)
    builder.environment = "gallery"
    builder.renderer = Qwen3VLInstructRenderer(processor.tokenizer, processor.image_processor)
    policy = Looking(processor.tokenizer)
    made = await do_group_rollout(builder, policy)
    assert made.get_total_rewards() == [1.0]
    assert [len(images) for images in policy.shown] == [1, 2]
    red, green, blue = Image.open(io.BytesIO(policy.shown[1][1].data)).getpixel((0, 0))
    assert red > 200 > 50 > max(green, blue)  # JPEG is not exact


async def test_a_group_with_crashes_has_the_advantages_of_the_others(url: str) -> None:
    strategy = MinViableGroup(min_successful=2, max_retries=0)
    scripts = (RIGHT, RIGHT, WRONG, RIGHT, CRASH, CRASH, WRONG, WRONG)
    made = await do_group_rollout(group(url, 8), Script(*scripts), strategy)
    # Of six, of which three are right: Tinker takes the mean, which is 0.5, and no deviation.
    assert advantages(made) == [-0.5, -0.5, -0.5, 0.5, 0.5, 0.5]
    metrics = compute_trajectory_metrics([made], [["hunt"]])
    assert (metrics["env/all/ors/left_out"], metrics["env/all/ors/failed_environment"]) == (0.25, 0.25)
    assert metrics["env/all/reward/total"] == 0.5


async def test_a_crash_can_be_made_a_loss(url: str) -> None:
    made = await do_group_rollout(group(url, 2, failed_reward={"environment": -1.0}), Script(RIGHT, CRASH))
    assert sorted(made.get_total_rewards()) == [-1.0, 1.0]


@pytest.mark.parametrize("reward", ["sum", "last", "max"])
async def test_an_episode_that_is_over_the_trainers_limit_keeps_what_it_earned(url: str, reward: str) -> None:
    builder = group(url, 1, reward=reward, truncated_reward=-1.0)
    builder.options = {"max_trajectory_tokens": 2200}
    policy = Script((called("hint"),) * 30)
    made = await do_group_rollout(builder, policy)
    turns = len(policy.sampled)
    assert turns > 1
    assert made.get_total_rewards() == [0.25 * turns if reward == "sum" else 0.25]
    assert made.metrics_G[0]["ors/truncated"] == 1.0


async def test_an_episode_that_is_cut_off_without_a_reward_has_the_one_for_that(url: str) -> None:
    builder = group(url, 1, truncated_reward=-0.5)
    for limit in (2200, 10):  # in the middle, and before the first reply
        builder.options = {"max_trajectory_tokens": limit}
        made = await do_group_rollout(builder, Script((called("look"),) * 30))
        assert made.get_total_rewards() == [-0.5]
    builder.arguments = {"reward": "sum", "truncated_reward": None}
    with pytest.raises(NoReward, match="truncated by tokens"):
        await do_group_rollout(builder, Script((called("look"),) * 30))


@pytest.mark.parametrize("says", ["length", "stop"])
async def test_a_reply_that_is_cut_off_truncates_and_is_not_graded(url: str, says: Any) -> None:
    builder = replace(group(url, 1, truncated_reward=-0.5), environment="essay")
    policy = Script(("It is 3, and because",))
    policy.cut_says = says
    made = await do_group_rollout(builder, policy)
    assert made.get_total_rewards() == [-0.5]
    assert made.trajectories_G[0].transitions[-1].logs["outcome"] == "truncated"


def test_the_trainers_own_rewards_of_cut_off_episodes_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="context_overflow_reward: set truncated_reward in the arguments"):
        replace(group(url, 1), options={"context_overflow_reward": -0.1})


async def test_replies_that_the_renderer_would_write_differently_stay_in_one_sequence(url: str) -> None:
    odd = '<tool_call>{"arguments":{},  "name":"hint"}</tool_call>  <|im_end|>'
    policy = Script((odd, odd, f"Well:\n{RIGHT[0]}"))
    made = await do_group_rollout(group(url, 1), policy)
    assert made.get_total_rewards() == [1.5]
    (datum,) = trajectory_to_data(made.trajectories_G[0], 1.0)
    mask = torch.tensor(datum.loss_fn_inputs["mask"].data).bool()
    targets = torch.tensor(datum.loss_fn_inputs["target_tokens"].data)
    assert targets[mask].tolist() == [token for ids in policy.sampled for token in ids]
    text = policy.tokenizer.decode(policy.prompts[2])
    assert text.count(odd) == 2
    assert text.count("Read the prompt.") == 2
    # Each prompt is the one before it, the reply, and what the renderer writes after a reply.
    for turn in (0, 1):
        told = policy.prompts[turn] + policy.sampled[turn]
        assert policy.prompts[turn + 1][: len(told)] == told
        after = policy.tokenizer.decode(policy.prompts[turn + 1][len(told) :])
        assert after.startswith("\n<|im_start|>user\n<tool_response>")
        assert after.endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize(
    "call",
    [
        "guess 3",
        '{"name": "guess", "arguments": "[3]"}',
        '{"name": "guess", "arguments": {"number": "\\ud83d"}}',
        '{"name": "\\ud83d", "arguments": {}}',
    ],
    ids=["no-json", "no-object", "half-a-character", "half-a-name"],
)
async def test_a_call_that_cannot_be_read_goes_back_to_the_model(url: str, call: str) -> None:
    policy = Script((f"<tool_call>{call}</tool_call><|im_end|>", *RIGHT))
    made = await do_group_rollout(group(url, 1), policy)
    assert made.get_total_rewards() == [1.0]
    assert len(policy.sampled) == 2


async def test_a_call_that_is_too_deep_for_the_renderer_ends_the_episode(url: str) -> None:
    policy = Script((f"<tool_call>{'[' * 3000}</tool_call><|im_end|>",))
    made = await do_group_rollout(group(url, 1, truncated_reward=-0.5), policy)
    assert made.get_total_rewards() == [-0.5]


async def test_a_wrong_environment_ends_the_training_whatever_the_strategy_catches(url: str) -> None:
    builder = replace(group(url, 4), environment="hnut")
    with pytest.raises(TrainingFailed, match=r"Unknown environment.*'hnut'"):
        await do_group_rollout(builder, Script(), MinViableGroup(min_successful=2, max_retries=0))


async def test_a_server_that_is_gone_ends_the_training_whatever_the_strategy_catches() -> None:
    builder = group("http://127.0.0.1:9", 8, retries=0)
    with pytest.raises(TrainingFailed, match=r"8 of the 8 episodes .*infrastructure, at the stage 'opening'"):
        await do_group_rollout(builder, Script(), MinViableGroup(min_successful=2, max_retries=0))


def test_every_outcome_counts_as_the_table_says(url: str) -> None:
    async def played(environment: str, case: Case, options: Any) -> float | None:
        asyncio.get_running_loop().set_default_executor(Inline())
        builder = replace(group(url, 1, **options), environment=environment)
        try:
            made = await do_group_rollout(builder, Script([each.hermes() for each in case.replies]))
        except NoReward:
            return None
        return float(made.get_total_rewards()[0])

    def play(
        url: str, environment: str, cases: Sequence[Case], options: Mapping[str, Any]
    ) -> Sequence[float | None]:
        return [asyncio.run(played(environment, case, options)) for case in cases]

    check(url, play)


async def test_metrics_have_the_means_of_the_named_rewards(url: str) -> None:
    builder = replace(group(url, 4, unscored_reward=0.0), environment="parts")
    scripts = (RIGHT, WRONG, SHRUG, CRASH)
    made = await do_group_rollout(builder, Script(*scripts), MinViableGroup(min_successful=2, max_retries=0))
    metrics = compute_trajectory_metrics([made], [["parts"]])
    assert metrics["env/all/ors/reward/correct"] == pytest.approx(1 / 3)
    assert metrics["env/all/ors/reward/format"] == pytest.approx(1 / 3)
    assert sorted(made.get_total_rewards()) == [0.0, 0.5, 1.5]
