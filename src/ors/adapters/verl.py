"""verl: an agent loop."""

from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
from verl.trainer.ppo.core_algos import AdvantageEstimator

from ors.adapters.common.clients import secrets_from, shared_client
from ors.adapters.common.training import Training, kind, recent, told
from ors.adapters.verl_tokens import TokenAgent
from ors.errors import ORSError
from ors.rollouts import EpisodeRecord, play
from ors.rollouts.driver import with_retries

_WITHOUT_BASELINE = (AdvantageEstimator.GAE, AdvantageEstimator.REINFORCE_PLUS_PLUS)


class ORSAgentLoop(AgentLoopBase):
    """Plays the task that a row names in `extra_info`, by `split` and `index`. The row's prompt is not used.

    `base_url`, `environment`, the `arguments` of the adapters and `secrets`, which names variables of the
    process, come from the file at `agent_loop_config_path`.
    """

    def __init__(
        self, *args: Any, base_url: str, environment: str, arguments: Any, secrets: Any = (), **kwargs: Any
    ):
        super().__init__(*args, **kwargs)
        self._base_url, self._environment, self._secrets = base_url, environment, secrets_from(secrets)
        self._training = Training.of(OmegaConf.to_object(arguments))

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Plays one episode. One without reward is masked: `grpo_ors` leaves it out of the baseline too."""
        estimator = OmegaConf.select(self.config, "algorithm.adv_estimator")
        if estimator in list(AdvantageEstimator) and estimator not in _WITHOUT_BASELINE:
            raise ValueError(
                f"algorithm.adv_estimator={estimator} counts episodes without a reward as 0 in the baseline:"
                " set it to grpo_ors, and VERL_USE_EXTERNAL_MODULES to ors.adapters.verl_grpo"
            )
        env, task = shared_client(self._base_url).environment(self._environment), row["extra_info"]
        agents: list[TokenAgent] = []
        played = recent(self._base_url, self._environment)
        if played.names is None:
            with suppress(ORSError):  # the episode will say why
                played.names = tuple((await env.reward_spec()).components)

        def attempt() -> Awaitable[EpisodeRecord]:
            agents.append(TokenAgent(self, sampling_params))
            session = env.session(secrets=self._secrets, split=task["split"], index=int(task["index"]))
            return play(session, agents[-1], **self._training.arguments)

        record = await with_retries(attempt, self._training.retries)
        if kind(record.outcome) in ("failed_agent", "failed_model") and record.reward is None:
            raise RuntimeError(f"the episode {told(record.outcome)}")
        metrics = played.count(record)
        return agents[-1].output(record, row.get("global_steps"), metrics, played.names or ())
