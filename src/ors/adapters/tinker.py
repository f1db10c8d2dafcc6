"""Tinker: the environments of one episode, and the group of a task for the cookbook's training loop."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import Any

from tinker import ModelInput
from tinker_cookbook.renderers import Message, Renderer, get_text_content
from tinker_cookbook.rl.data_processing import _flat_ob_to_model_input, _flatten_chunks
from tinker_cookbook.rl.message_env import EnvFromMessageEnv, MessageEnv, MessageStepResult
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, InitialObservationOverflow, StepResult

from ors.adapters.chat import call_of, chat_message, tool_schemas
from ors.adapters.training import (
    Account,
    MostFailed,
    NoReward,
    Recent,
    Training,
    TrainingArguments,
    component_means,
    recent,
    secrets_from,
    shared_client,
)
from ors.client import AsyncSession, ToolInvocation
from ors.rollouts import AgentMessage, EpisodeRecord, SteppedEpisode, SystemMessage


class TrainingFailed(BaseException):
    """Ends a training in which most episodes fail. The cookbook's strategies catch every `Exception`."""


class ORSMessageEnv(MessageEnv):
    """One episode. Raises `NoReward` when it ends and is left out, `TrainingFailed` when most do.

    Close it at the end, even if the trainer has cut it off.
    """

    def __init__(
        self, session: Callable[[], AsyncSession], renderer: Renderer, training: Training, played: Recent
    ) -> None:
        self._session, self._renderer, self._training, self._played = session, renderer, training, played
        self._episode: SteppedEpisode | None = None
        self._history: list[Message] = []
        self.account, self.metrics, self.logs = Account(training), dict[str, float](), dict[str, str]()
        self.record: EpisodeRecord | None = None

    async def initial_observation(self) -> list[Message]:
        """Opens the session."""
        self._episode, first = await self._training.begin_async(self._session)
        if self._episode.record is not None:
            self._pay(())
            raise NoReward(self._episode.record)
        system = "\n\n".join(each.text for each in first if isinstance(each, SystemMessage))
        tools = [{"description": ""} | tool["function"] for tool in tool_schemas(self._episode.tools)]
        self._history = list(self._renderer.create_conversation_prefix_with_tools(tools, system))
        self._history += [chat_message(each) for each in first if not isinstance(each, SystemMessage)]
        return list(self._history)

    async def step(self, message: Message) -> MessageStepResult:
        """Plays one reply. All steps so far have paid what the episode counts as if it is cut off here."""
        assert self._episode is not None, "call initial_observation() first"
        new = await self._episode.step(
            AgentMessage(get_text_content(message), _calls(message, len(self._history)))
        )
        self._history += [message, *map(chat_message, new)]
        reward = self._pay(new)
        return MessageStepResult(reward, self._episode.record is not None, list(self._history))

    async def cut(self) -> None:
        """Truncates the episode, unless it has ended."""
        if self._episode is not None and self._episode.record is None:
            await self._episode.stop("the reply, or the conversation, is too long for the trainer")
            self._pay(())

    async def close(self) -> None:
        if self._episode is not None:
            await self._episode.stop("the trainer ended the episode")

    def _pay(self, new: Sequence[Any]) -> float:
        assert self._episode is not None
        record = self._episode.record
        if record is not None:
            self.record = record
            self.logs = {"outcome": record.outcome.type}
            try:
                self.metrics = self._played.count(record)
            except MostFailed as error:
                raise TrainingFailed(str(error)) from None
        return self.account.pay(new, record)


class ORSTokenEnv(EnvFromMessageEnv):
    """The same in tokens. What the trainer cuts off is truncated; what it sampled is never rendered again."""

    _rendered: Sequence[Any] = ()
    """The conversation as the renderer writes it: calls of the model may look different there."""
    _shown: Sequence[Any] = ()
    _action: Sequence[int] = ()

    async def initial_observation(self) -> Any:
        found = await super().initial_observation()
        if isinstance(found, InitialObservationOverflow):
            await self.message_env.cut()
            return replace(found, reward=self.message_env.account.paid)
        return found

    async def step(self, action: Any, *, extra: Any = None) -> Any:
        self._action, before = action, self.message_env.account.paid
        try:
            result = await super().step(action, extra=extra)
        except RecursionError:  # renderers fail at a call that is nested this deeply
            result = StepResult(0.0, True, ModelInput.empty(), self._base_stop_condition)
        if result.episode_done:
            await self.message_env.cut()
        reward = self.message_env.account.paid - before
        return replace(result, reward=reward, logs=result.logs | self.message_env.logs)

    async def _render_in_thread(self, messages: list[Message], **kwargs: Any) -> ModelInput:
        before, shown = self._rendered, self._shown
        made = await super()._render_in_thread(messages, **kwargs)
        self._rendered = self._shown = _flatten_chunks(made.chunks)
        added = self._rendered[len(before) :]
        ends = [place for place, token in enumerate(added) if token in self._base_stop_condition]
        if shown and ends and self._rendered[: len(before)] == before:
            self._shown = [*shown, *self._action, *added[ends[0] + 1 :]]
        return _flat_ob_to_model_input(self._shown)


def _calls(message: Message, turn: int) -> tuple[ToolInvocation, ...]:
    calls = [
        call_of(each.function.name, each.function.arguments, each.id or f"call_{turn}_{number}")
        for number, each in enumerate(message.get("tool_calls", ()))
    ]
    unread = [
        ToolInvocation("unread", {}, f"unread_{turn}_{number}", each.error, each.raw_text)
        for number, each in enumerate(message.get("unparsed_tool_calls", ()))
    ]
    return (*calls, *unread)


@dataclass
class ORSGroupBuilder(EnvGroupBuilder):
    """The environments of one task's group. Can be pickled.

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
    """Names of the environment's secrets, taken from environment variables of the process that plays."""
    _envs: list[ORSMessageEnv] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        Training.of(self.arguments)
        if wrong := [name for name in self.options if name.endswith("_reward")]:
            raise ValueError(f"{', '.join(wrong)}: set truncated_reward in the arguments instead")

    async def make_envs(self) -> Sequence[Env]:
        """Makes environments; the strategies call it again to repeat one."""
        env = shared_client(self.base_url).environment(self.environment)
        secrets = secrets_from(self.secrets)
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
        await asyncio.gather(*(env.close() for env in envs))

    def logging_tags(self) -> list[str]:
        return [self.environment, f"{self.environment}/{self.split}"]
