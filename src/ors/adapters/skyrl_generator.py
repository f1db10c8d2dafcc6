"""SkyRL: its generator, for environments whose episodes may have no reward."""

from collections import defaultdict
from collections.abc import Sequence
from contextvars import ContextVar
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator, StepWiseOutput, TrajectoryOutput

from ors.adapters.common.training import NoReward, Watch, check_recent
from ors.adapters.skyrl import ORSTextEnv
from ors.rollouts import EpisodeRecord
from ors.rollouts.episodes.outcome import worth_retrying

LEFT_OUT = "left_out"
"""The stop reason of a masked row."""

_played: ContextVar[list[EpisodeRecord]] = ContextVar("played")
_stop_reason: ContextVar[str] = ContextVar("stop_reason", default="stop")


class ORSGymGenerator(SkyRLGymGenerator):
    """SkyRL's own generator, which masks an episode that is left out, instead of losing the whole step.

    Its group's baseline is that of the others. Replies that are cut off truncate their episode.
    """

    def __init__(
        self, generator_cfg: Any, skyrl_gym_cfg: Any, inference_engine_client: Any, *args: Any, **kwargs: Any
    ) -> None:
        if generator_cfg.batched:
            raise ValueError("ORSGymGenerator plays episodes one by one: set generator.batched=false")
        super().__init__(generator_cfg, skyrl_gym_cfg, _Noting(inference_engine_client), *args, **kwargs)
        self._watch = Watch()

    async def generate(self, input_batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Plays the episodes of a step, and counts what became of them in its metrics.

        Raises:
            MostFailed: most of them failed.
        """
        records: list[EpisodeRecord] = []
        _played.set(records)
        made = await super().generate(input_batch, *args, **kwargs)
        metrics = self._watch.count(records)
        check_recent(records)
        made["rollout_metrics"] = (made["rollout_metrics"] or {}) | metrics
        ids = made.get("trajectory_ids") or input_batch.get("trajectory_ids")
        if ids is not None:
            _level(made, [each.instance_id for each in ids])
        return made

    async def agent_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Plays one episode; anew, if the infrastructure failed in the middle of it."""
        output, env = await self._attempt(*args, **kwargs)
        if env is None:
            return output
        for _ in range(env.training.retries):
            if not env.turns or not worth_retrying(env.record.outcome):
                break
            output, env = await self._attempt(*args, **kwargs)
        _played.get().append(env.record)
        return self._output(output, env.record.reward)

    async def _attempt(self, prompt: Any, env_class: str, extras: Any, *args: Any, **kwargs: Any) -> Any:
        """What SkyRL's loop made of an episode, and the environment that played it."""
        envs: list[ORSTextEnv] = []
        output = None
        try:
            output = await super().agent_loop(
                prompt, env_class, {**extras, "ors_envs": envs}, *args, **kwargs
            )
        except NoReward:
            pass
        except TypeError:  # SkyRL's own, for a prompt that is over max_input_length alone
            if not envs or envs[0].turns:
                raise
        finally:
            for env in envs:
                await self._run_in_executor_if_available(env.close)
        return output, envs[0] if envs else None

    def _output(self, output: Any, reward: float | None) -> Any:
        steps = self.generator_cfg.step_wise_trajectories
        if reward is None or output is None or output == StepWiseOutput([]):
            none: Any = 0.0 if self.custom_chat_template else [0.0]
            pad = [self.tokenizer.pad_token_id]
            masked = TrajectoryOutput(pad, none, LEFT_OUT, [0], pad, [0.0], {})
            return StepWiseOutput([masked]) if steps else masked
        # SkyRL takes the reward of the last step alone here.
        if steps:
            for step in output.step_outputs:
                step.reward = [0.0] * len(step.response_ids)
            output.step_outputs[-1].reward[-1] = reward
        elif self.custom_chat_template:
            output.reward = reward
        return output

    async def _run_in_executor_if_available(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(func, "__func__", None) is ORSTextEnv.step and _stop_reason.get() == "length":
            func = func.__self__.cut_off
        return await super()._run_in_executor_if_available(func, *args, **kwargs)


class _Noting:
    """SkyRL's client of the model, which notes why the reply of an episode stopped."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def generate(self, *args: Any, **kwargs: Any) -> Any:
        answer = await self._client.generate(*args, **kwargs)
        _stop_reason.set(answer["stop_reasons"][0])
        return answer


def _level(made: Any, groups: Sequence[str]) -> None:
    """Gives masked rows a reward that changes neither the metrics of the step nor the baseline of the group.

    SkyRL knows no rows without a reward: its baselines are over all of a group.
    """
    live, masked = defaultdict[str, list[float]](list), defaultdict[str, list[int]](list)
    rewards, last = made["rewards"], made.get("is_last_step") or [True] * len(groups)
    for row, (group, reason) in enumerate(zip(groups, made["stop_reasons"], strict=True)):
        if reason == LEFT_OUT:
            masked[group].append(row)
        elif last[row]:
            live[group].append(sum(rewards[row]) if isinstance(rewards[row], list) else rewards[row])
    for group, rows in masked.items():
        for row, reward in zip(rows, _neutral(live[group], len(rows)), strict=True):
            rewards[row] = [reward] if isinstance(rewards[row], list) else reward


def _neutral(rewards: Sequence[float], count: int) -> list[float]:
    """So many rewards with the mean of these and, if there is more than one, with their deviation."""
    mean = fmean(rewards) if rewards else 0.0
    away = stdev(rewards) * sqrt(count / 2) if len(rewards) > 1 < count else 0.0
    return [mean + away, mean - away, *[mean] * (count - 2)][:count]
