"""Tinker: the group of a task for the cookbook's training loop."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any

from tinker_cookbook.renderers import Renderer
from tinker_cookbook.rl.types import Env, EnvGroupBuilder

from ors.adapters.common.clients import OPTIONS, exit_on_sigterm, secrets_from
from ors.adapters.common.training import Training, TrainingArguments, component_means, recent
from ors.adapters.tinker_envs import ORSMessageEnv, ORSTokenEnv
from ors.client import AsyncORS


@dataclass
class ORSGroupBuilder(EnvGroupBuilder):
    """The environments of one task's group. Can be pickled; they share a client while they run.

    Use it with `RetryOnFailure` or `MinViableGroup`: an episode without reward raises `NoReward`.
    """

    base_url: str
    environment: str
    split: str
    index: int
    renderer: Renderer
    group_size: int
    arguments: TrainingArguments
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `EnvFromMessageEnv`, such as `max_trajectory_tokens`, without its rewards."""
    secrets: Sequence[str] = ()
    """Names of those that the environment gets, from the variables of the process that plays."""
    _client: AsyncORS | None = field(default=None, init=False, repr=False)
    _envs: list[ORSMessageEnv] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        Training.of(self.arguments)
        if wrong := [name for name in self.options if name.endswith("_reward")]:
            raise ValueError(f"{', '.join(wrong)}: what is cut off has the truncated_reward of the arguments")

    async def make_envs(self) -> Sequence[Env]:
        """Makes environments; the strategies call it again to repeat one."""
        if self._client is None:
            exit_on_sigterm()
            self._client = AsyncORS(self.base_url, options=OPTIONS)
        env, secrets = self._client.environment(self.environment), secrets_from(self.secrets)
        session = partial(env.session, secrets=secrets, split=self.split, index=self.index)
        training, played = Training.of(self.arguments), recent(self.base_url, self.environment)
        made = [ORSMessageEnv(session, self.renderer, training, played) for _ in range(self.group_size)]
        self._envs += made
        return [ORSTokenEnv(self.renderer, each, **self.options) for each in made]

    async def compute_group_rewards(
        self, trajectory_group: Sequence[Any], env_group: Sequence[Env]
    ) -> list[tuple[float, dict[str, float]]]:
        """No further reward. Metrics: the share of each outcome, and the means of the named rewards."""
        ended = [each.metrics for each in self._envs if each.metrics]
        shares = {name: fmean(each[name] for each in ended) for name in (ended[0] if ended else ())}
        means = component_means([each.record for each in self._envs if each.record is not None])
        return [(0.0, shares | means) for _ in trajectory_group]

    async def cleanup(self) -> None:
        """Ends the sessions that are still open."""
        envs, self._envs = self._envs, []
        client, self._client = self._client, None
        await asyncio.gather(*(env.close() for env in envs))
        if client is not None:
            await client.close()

    def logging_tags(self) -> list[str]:
        return [self.environment, f"{self.environment}/{self.split}"]
