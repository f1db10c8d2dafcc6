"""ModelAgent: a model that plays."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from ors.client import AsyncSession
from ors.models.model import Model
from ors.providers.base import ModelOptions
from ors.providers.errors import ModelError
from ors.providers.messages import AgentMessage, ToolMessage
from ors.rollouts.episodes.episode import Conversation, EpisodeRecord
from ors.rollouts.episodes.played import play
from ors.rollouts.episodes.rules import PlayArguments
from ors.rollouts.episodes.task import episode_key
from ors.types import ToolSpec


class ModelAgent(Model):
    """A model of a provider, or of a server that speaks its API. Close it after use.

    `provider` is "openai" (Chat Completions), "openai-responses", "anthropic", "google" or "openrouter".
    `base_url` and `api_key` come from the provider's usual environment variables if they are not given.
    The other options are the fields of `ModelOptions`.

    Raises:
        ValueError: the provider is unknown, has no such option, or needs a key.
    """

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        """Asks the model for its next message.

        Raises:
            ContextExceeded: the conversation is too long.
            ModelError: the provider failed.
            ValueError: the provider's rules forbid the name or the input of a tool.
        """
        reply = await self.answer(conversation.messages, tools, options=self._seeded(conversation))
        if reply.stop != "stop" or reply.calls or reply.text.strip():
            return reply
        # After results of calls, models say that they are done by saying nothing.
        if any(isinstance(message, ToolMessage) for message in conversation.messages):
            return replace(reply, stop="empty")
        raise ModelError(f"the answer from {self!r} is not valid: it has neither text nor a tool call")

    def _seeded(self, conversation: Conversation) -> ModelOptions:
        if self.options.seed is None:
            return self.options
        episode = episode_key(conversation.task, conversation.sample)
        digest = hashlib.sha256(f"{self.options.seed} {episode}".encode()).digest()
        return replace(self.options, seed=int.from_bytes(digest[:4]) // 2)  # all providers take 31 bits


async def play_model(
    session: AsyncSession,
    base_url: str,
    model: str,
    *,
    api_key: str | None = None,
    options: Mapping[str, Any] | None = None,
    sample: int = 0,
    **arguments: Unpack[PlayArguments],
) -> EpisodeRecord:
    """Plays one episode in `session` with a model that is served as Chat Completions: see `play`.

    For trainers that capture the tokens behind an address of their own. `options` are those of `ModelAgent`.

    Raises:
        ValueError: `base_url` or an option is not valid, or `reward` is not a known reduction.
    """
    agent = ModelAgent("openai", model, base_url=base_url, api_key=api_key, **(options or {}))
    try:
        return await play(session, agent, sample=sample, **arguments)
    finally:
        await agent.close()
