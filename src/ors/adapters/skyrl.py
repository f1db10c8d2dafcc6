"""SkyRL: a text environment for skyrl-gym."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from ors.adapters.chat import described_tools, parse_reply, text_of
from ors.adapters.training import (
    Account,
    NoReward,
    Training,
    TrainingArguments,
    means_of,
    secrets_from,
    shared_sync_client,
)
from ors.rollouts import (
    AgentMessage,
    EpisodeLimits,
    Message,
    SteppedEpisodeSync,
    SystemMessage,
    ToolMessage,
    UserMessage,
)


class CutOff(str):
    """A reply that reached its length limit."""

    __slots__ = ()


class ORSTextEnv(BaseTextEnv):
    """One episode of the task that a row names in `extra_info`, by `split` and `index`.

    Raises `NoReward` when it ends, or cannot begin, and is left out.

    `base_url`, `environment`, the `arguments` of the adapters, `parse`, which reads a reply, and `secrets`,
    which names variables of the process, are the `kwargs` of `skyrl_gym.register`.
    """

    def __init__(
        self,
        env_config: Any = None,
        extras: dict[str, Any] | None = None,
        *,
        base_url: str,
        environment: str,
        arguments: TrainingArguments,
        parse: Callable[[str], AgentMessage] = parse_reply,
        secrets: Sequence[str] = (),
    ) -> None:
        super().__init__()
        extras = extras or {}
        limits = arguments.get("limits", EpisodeLimits())
        turns = min(filter(None, (limits.turns, extras.get("max_turns"))), default=None)
        self.training = Training.of({**arguments, "limits": replace(limits, turns=turns)})
        env, task = shared_sync_client(base_url).environment(environment), extras["extra_info"]
        self._session = partial(
            env.session, secrets=secrets_from(secrets), split=task["split"], index=int(task["index"])
        )
        self._parse, self._account = parse, Account(self.training)
        self.episode: SteppedEpisodeSync | None = None
        extras.get("ors_envs", []).append(self)  # of our generator, which asks for the record

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """Opens the session; returns its prompt after the messages of the row, and the tools."""
        self.episode, first = self.training.begin(self._session)
        if self.episode.record is not None:
            raise NoReward(self.episode.record)
        own = [each.text for each in first if isinstance(each, SystemMessage)]
        given = [each for each in prompt if each["role"] == "system"]
        tools = described_tools(self.episode.tools)
        system = "\n\n".join([*(each["content"] for each in given), *own, tools])
        rest = [each for each in prompt if each["role"] != "system" and each["content"]]
        return [{"role": "system", "content": system}, *rest, *_observations(first)], {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Plays one reply. All steps so far have paid what the episode counts as if it is cut off here."""
        assert self.episode is not None, "call init() first"
        self.turns += 1
        cut = isinstance(action, CutOff)
        new = self.episode.step(AgentMessage(str(action), stop="length") if cut else self._parse(action))
        record = self.episode.record
        return BaseTextEnvStepOutput(
            observations=_observations(new) if record is None else [],
            reward=self._account.pay(new, record),
            done=record is not None,
            metadata={} if record is None else {"outcome": record.outcome.type},
        )

    def get_metrics(self) -> dict[str, float]:
        """The reward of the episode, and its named rewards; nothing if it is left out."""
        record = None if self.episode is None else self.episode.record
        if self.episode is None or (record is not None and record.reward is None):
            return {}
        components = self._account.components() if record is None else record.components
        named = {f"reward/{name}": value for name, value in components.items()}
        return {"reward": self._account.paid if record is None else record.reward or 0.0, **named}

    @staticmethod
    def aggregate_metrics(metrics: list[dict[str, float]]) -> dict[str, float]:
        """Means. An episode that counts and lacks a named reward counts as 0 in it."""
        return means_of([each for each in metrics if each])

    def close(self) -> None:
        if self.episode is not None:
            self.episode.stop("the trainer ended the episode")


def _observations(messages: tuple[Message, ...]) -> list[dict[str, str]]:
    return [
        {"role": "tool" if isinstance(each, ToolMessage) else "user", "content": text_of(each.blocks)}
        for each in messages
        if isinstance(each, ToolMessage | UserMessage)
    ]
