"""Tinker: a message environment, and the group of a task for the cookbook's training loop."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

from tinker_cookbook.renderers import Message, Renderer, get_text_content
from tinker_cookbook.rl.message_env import EnvFromMessageEnv, MessageEnv, MessageStepResult
from tinker_cookbook.rl.types import Env, EnvGroupBuilder

from ors.adapters.common.chat import call_of, chat_message, tool_schemas
from ors.adapters.common.clients import OPTIONS
from ors.adapters.common.secrets import secrets_from
from ors.adapters.common.training import NoReward, reward_of
from ors.client import AsyncORS, AsyncSession, ToolInvocation
from ors.rollouts import AgentMessage, PlayArguments, SteppedEpisode, SystemMessage, ToolMessage


class ORSMessageEnv(MessageEnv):
    """One episode. Close it in the end, also after the trainer has cut it off."""

    def __init__(self, session: AsyncSession, renderer: Renderer, **arguments: Unpack[PlayArguments]) -> None:
        self._session, self._renderer, self._arguments = session, renderer, arguments
        self._episode: SteppedEpisode | None = None
        self._history: list[Message] = []
        self._paid = 0.0

    async def initial_observation(self) -> list[Message]:
        """Opens the session.

        Raises:
            NoReward: it cannot be opened.
        """
        self._episode = SteppedEpisode(self._session, **self._arguments)
        first = await self._episode.start()
        if self._episode.record is not None:
            raise NoReward(self._episode.record)
        system = "\n\n".join(each.text for each in first if isinstance(each, SystemMessage))
        tools = [tool["function"] for tool in tool_schemas(self._episode.tools)]
        described = [{"description": ""} | tool for tool in tools]
        self._history = list(self._renderer.create_conversation_prefix_with_tools(described, system))
        self._history += [chat_message(each) for each in first if not isinstance(each, SystemMessage)]
        return list(self._history)

    async def step(self, message: Message) -> MessageStepResult:
        """Plays one reply.

        Raises:
            NoReward: the episode has ended without a reward.
        """
        assert self._episode is not None, "initial_observation() comes first"
        new = await self._episode.step(
            AgentMessage(get_text_content(message), _calls(message, len(self._history)))
        )
        # The message of the renderer itself: rendered again, it gives the tokens that were sampled.
        self._history += [message, *map(chat_message, new)]
        record = self._episode.record
        reward = self._pay(new) if record is None else reward_of(record) - self._paid
        logs = {} if record is None else {"outcome": record.outcome.type}
        return MessageStepResult(reward, record is not None, list(self._history), logs=logs)

    async def close(self) -> None:
        if self._episode is not None:
            await self._episode.stop("the trainer ended the episode")

    def _pay(self, new: Sequence[Any]) -> float:
        """The reward of a step. The trainer adds them up, so other reductions are paid at the end."""
        if self._arguments["reward"] != "sum":
            return 0.0
        reward = sum(each.reward or 0.0 for each in new if isinstance(each, ToolMessage))
        self._paid += reward
        return reward


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
    arguments: PlayArguments
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `EnvFromMessageEnv`, such as `max_trajectory_tokens`."""
    secrets: Sequence[str] = ()
    """Names of those that the environment gets, from the variables of the process that plays."""
    _client: AsyncORS | None = field(default=None, init=False, repr=False)
    _envs: list[ORSMessageEnv] = field(default_factory=list, init=False, repr=False)

    async def make_envs(self) -> Sequence[Env]:
        """Makes environments; the strategies call it again to repeat one."""
        if self._client is None:
            self._client = AsyncORS(self.base_url, options=OPTIONS)
        env = self._client.environment(self.environment)
        secrets = secrets_from(self.secrets)
        sessions = [
            env.session(secrets=secrets, split=self.split, index=self.index) for _ in range(self.group_size)
        ]
        made = [ORSMessageEnv(session, self.renderer, **self.arguments) for session in sessions]
        self._envs += made
        return [EnvFromMessageEnv(self.renderer, each, **self.options) for each in made]

    async def cleanup(self) -> None:
        """Ends the sessions that are still open."""
        envs, self._envs = self._envs, []
        client, self._client = self._client, None
        await asyncio.gather(*(env.close() for env in envs))
        if client is not None:
            await client.close()

    def logging_tags(self) -> list[str]:
        return [self.environment, f"{self.environment}/{self.split}"]


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
