"""NoopAgent: an agent that does nothing."""

from collections.abc import Sequence

from ors.rollouts.agent import Conversation
from ors.rollouts.messages import AgentMessage
from ors.types import ToolSpec


class NoopAgent:
    """Replies with an empty message: what does an environment give for nothing?"""

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        """An empty message."""
        return AgentMessage()
