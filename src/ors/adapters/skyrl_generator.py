"""SkyRL: its generator, for environments whose episodes may have no reward."""

from collections import defaultdict
from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator, TrajectoryOutput

from ors.adapters.skyrl import CutOff, ORSTextEnv
from ors.adapters.training import NoReward, Watch, check_recent
from ors.rollouts.episodes.outcome import worth_retrying

LEFT_OUT = "left_out"
"""The stop reason of a masked row."""


class ORSGymGenerator(SkyRLGymGenerator):
    """SkyRL's own generator, but it masks an episode that is left out instead of losing the whole step.

    The baseline of its group is that of the others. Replies that are cut off truncate their episode.
    """

    inference_engine_client: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.batched or self.generator_cfg.step_wise_trajectories or self.custom_chat_template:
            raise ValueError(
                "ORSGymGenerator plays whole episodes: set generator.batched=false and"
                " generator.step_wise_trajectories=false, and leave generator.chat_template out"
            )
        self.inference_engine_client, self._watch = _Marking(self.inference_engine_client), Watch()

    async def generate(self, input_batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Plays the episodes of a step, and counts them in its metrics. Raises `MostFailed` if most fail."""
        rows = [{**extras, "ors_envs": list[ORSTextEnv]()} for extras in input_batch["env_extras"]]
        made = await super().generate({**input_batch, "env_extras": rows}, *args, **kwargs)
        records = [row["ors_envs"][-1].episode.record for row in rows if row["ors_envs"]]
        made["rollout_metrics"] |= self._watch.count(records)
        check_recent(records)
        if ids := input_batch.get("trajectory_ids"):
            _level(made, [each.instance_id for each in ids])
        return made

    async def agent_loop(self, prompt: Any, env_class: str, env_extras: Any, *rest: Any, **named: Any) -> Any:
        """Plays one episode; restarts if the infrastructure failed in the middle of it."""
        envs, output = env_extras["ors_envs"], None
        try:
            output = await super().agent_loop(prompt, env_class, env_extras, *rest, **named)
        except NoReward:
            pass
        except TypeError:  # SkyRL's own, for a prompt that is over max_input_length alone
            if not envs or envs[-1].turns:
                raise
        finally:
            for env in envs:
                await self._run_in_executor_if_available(env.close)
        if not envs:  # an environment that is not ours
            return output
        env, record = envs[-1], envs[-1].episode.record
        if env.turns and len(envs) <= env.training.retries and worth_retrying(record.outcome):
            return await self.agent_loop(prompt, env_class, env_extras, *rest, **named)
        if output is None or record.reward is None:
            pad = [self.tokenizer.pad_token_id]
            return TrajectoryOutput(pad, [0.0], LEFT_OUT, [0], pad, [0.0], {})
        return output


class _Marking:
    """SkyRL's client of the model, which marks replies that are cut off."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def generate(self, *args: Any, **kwargs: Any) -> Any:
        answer = await self._client.generate(*args, **kwargs)
        if answer["stop_reasons"][0] == "length":
            answer["responses"] = [CutOff(answer["responses"][0])]
        return answer


def _level(made: Any, groups: Sequence[str]) -> None:
    """Gives masked rows a reward that changes neither the metrics of the step nor the baseline of the group.

    SkyRL knows no rows without a reward: its baselines are over all of a group.
    """
    live, masked = defaultdict[str, list[float]](list), defaultdict[str, list[int]](list)
    for row, (group, reason) in enumerate(zip(groups, made["stop_reasons"], strict=True)):
        if reason == LEFT_OUT:
            masked[group].append(row)
        else:
            live[group].append(sum(made["rewards"][row]))
    for group, rows in masked.items():
        for row, reward in zip(rows, _neutral(live[group], len(rows)), strict=True):
            made["rewards"][row] = [reward]


def _neutral(rewards: Sequence[float], count: int) -> list[float]:
    """So many rewards with the mean of these and, if there is more than one, with their deviation."""
    mean = fmean(rewards) if rewards else 0.0
    away = stdev(rewards) * sqrt(count / 2) if len(rewards) > 1 < count else 0.0
    return [mean + away, mean - away, *[mean] * (count - 2)][:count]
