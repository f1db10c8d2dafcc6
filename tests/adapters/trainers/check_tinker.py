"""Tinker's own rollout of groups on our environments, with a completer that samples by a script."""

import asyncio
import io
import pickle
from collections.abc import Callable, Sequence
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
from tinker_cookbook.rl.rollout_strategy import MinViableGroup, RetryOnFailure
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.rl.types import TrajectoryGroup

from ors.adapters.common.training import NoReward
from ors.adapters.tinker import ORSGroupBuilder
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
    asyncio.get_running_loop().set_default_executor(Inline())


class Script(TokenCompleter):
    """Samples the replies of a script for each rollout, told apart by who comes first."""

    def __init__(self, *scripts: Sequence[str]) -> None:
        self.tokenizer = tiny_tokenizer()
        self.scripts = list(scripts)
        self.sampled: list[list[int]] = []
        self.prompts: list[list[int]] = []
        self.before_reply: Callable[[int], object] = lambda turn: None

    async def __call__(self, model_input: Any, stop: Any, *, max_tokens: int | None = None) -> Any:
        prompt = model_input.to_ints()
        turn = self.tokenizer.decode(prompt).count("<tool_response>")
        self.before_reply(turn)
        text = self.scripts.pop(0)[0] if turn == 0 else HINTED[turn]
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        self.sampled.append(ids)
        self.prompts.append(prompt)
        return TokensWithLogprobs(tokens=ids, maybe_logprobs=[-0.5] * len(ids))


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


async def test_another_reduction_is_paid_at_the_end(url: str) -> None:
    made = await do_group_rollout(group(url, 1, reward="last"), Script(HINTED))
    assert [each.reward for each in made.trajectories_G[0].transitions] == [0.0, 1.0]


@pytest.mark.parametrize("bad", [CRASH, SHRUG], ids=["raises", "no-reward"])
async def test_an_episode_without_reward_is_in_neither_gradient_nor_baseline(
    url: str, bad: Sequence[str]
) -> None:
    strategy = MinViableGroup(min_successful=3, max_retries=0)
    with_bad = await do_group_rollout(group(url, 4), Script(RIGHT, RIGHT, WRONG, bad), strategy)
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
