"""SkyRL: a text environment for skyrl-gym."""

from collections.abc import Callable, Sequence
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from ors.adapters.common.chat import text_of
from ors.adapters.common.clients import shared_sync_client
from ors.adapters.common.hermes import described_tools, parse_reply
from ors.adapters.common.secrets import secrets_from
from ors.adapters.common.training import NoReward, reward_of
from ors.rollouts import (
    AgentMessage,
    Message,
    PlayArguments,
    SteppedEpisodeSync,
    SystemMessage,
    ToolMessage,
    UserMessage,
)


class ORSTextEnv(BaseTextEnv):
    """One episode of the task that a row names in `extra_info`, by `split` and `index`.

    `base_url`, `environment`, the `arguments` of `play`, `parse`, which reads a reply, and `secrets`, which
    names variables of the process, are the `kwargs` of `skyrl_gym.register`.
    """

    def __init__(
        self,
        env_config: Any = None,
        extras: dict[str, Any] | None = None,
        *,
        base_url: str,
        environment: str,
        arguments: PlayArguments,
        parse: Callable[[str], AgentMessage] = parse_reply,
        secrets: Sequence[str] = (),
    ) -> None:
        super().__init__()
        task = (extras or {})["extra_info"]
        env = shared_sync_client(base_url).environment(environment)
        given = secrets_from(secrets)
        session = env.session(secrets=given, split=task["split"], index=int(task["index"]))
        self._episode = SteppedEpisodeSync(session, **arguments)
        self._parse = parse
        self._by_step = arguments["reward"] == "sum"
        self._paid = 0.0

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """Opens the session; returns its prompt after the messages of the row, and the tools.

        Raises:
            NoReward: it cannot be opened.
        """
        first = self._episode.start()
        if self._episode.record is not None:
            raise NoReward(self._episode.record)
        own = [each.text for each in first if isinstance(each, SystemMessage)]
        given = [each for each in prompt if each["role"] == "system"]
        tools = described_tools(self._episode.tools)
        system = "\n\n".join([*(each["content"] for each in given), *own, tools])
        rest = [each for each in prompt if each["role"] != "system" and each["content"]]
        return [{"role": "system", "content": system}, *rest, *_observations(first)], {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Plays one reply. With the reduction "sum" each turn has its reward; otherwise the last has it.

        Raises:
            NoReward: the episode has ended without a reward.
        """
        self.turns += 1
        new = self._episode.step(self._parse(action))
        record = self._episode.record
        if record is not None:
            reward, metadata = reward_of(record) - self._paid, {"outcome": record.outcome.type}
            return BaseTextEnvStepOutput(observations=[], reward=reward, done=True, metadata=metadata)
        reward = sum(each.reward or 0.0 for each in new if isinstance(each, ToolMessage))
        reward = reward if self._by_step else 0.0
        self._paid += reward
        return BaseTextEnvStepOutput(observations=_observations(new), reward=reward, done=False, metadata={})

    def close(self) -> None:
        self._episode.stop("the trainer ended the episode")


def _observations(messages: tuple[Message, ...]) -> list[dict[str, str]]:
    made = []
    for message in messages:
        if isinstance(message, ToolMessage):
            made.append({"role": "tool", "content": text_of(message.blocks)})
        elif isinstance(message, UserMessage):
            made.append({"role": "user", "content": text_of(message.blocks)})
    return made
