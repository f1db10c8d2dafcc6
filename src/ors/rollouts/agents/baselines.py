"""Agents without a model: one does nothing, one calls random tools."""

import random
from collections.abc import Mapping, Sequence

from ors.client import ToolInvocation
from ors.rollouts.agent import Conversation
from ors.rollouts.episodes.messages import AgentMessage
from ors.rollouts.task_key import episode_key
from ors.schemas import Inputs
from ors.types import ToolSpec


class NoopAgent:
    """Replies with an empty message: what does an environment give for nothing?"""

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        return AgentMessage()


class RandomAgent:
    """Calls one random tool at a time, with an input that fits its schema.

    A string with a pattern needs an example or a default for that.
    The same seed, task and sample give the same calls.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        """A call of a random tool; an empty message if there are no tools."""
        if not tools:
            return AgentMessage()
        turn = sum(message.role == "assistant" for message in conversation.messages)
        episode = episode_key(conversation.task, conversation.sample)
        source = random.Random(f"{self.seed} {turn} {episode}")
        tool = source.choice(list(tools))
        made = Inputs(source).make(tool.input_schema)
        given = dict(made) if isinstance(made, Mapping) else {}
        return AgentMessage(calls=(ToolInvocation(tool.name, given, f"call_{turn + 1}"),))
