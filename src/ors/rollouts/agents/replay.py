"""ReplayAgent: an agent that repeats recorded episodes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ors.rollouts.agent import Conversation
from ors.rollouts.episodes.messages import AgentMessage, Usage
from ors.rollouts.episodes.record import EpisodeRecord
from ors.rollouts.task_key import episode_key
from ors.types import ToolSpec


class ReplayAgent:
    """Repeats the replies of recorded episodes, found by task and sample. Of several, the last counts."""

    def __init__(self, records: Iterable[EpisodeRecord]) -> None:
        self._replies = {episode_key(record.task, record.sample): _replies(record) for record in records}

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        """The next reply of the record; an empty message after the last.

        Raises:
            ValueError: no record is of this task and sample.
        """
        task, sample = episode_key(conversation.task, conversation.sample)
        found = self._replies.get((task, sample))
        if found is None:
            raise ValueError(f"no recorded episode of {task.environment} {task.label} is sample {sample}")
        made = sum(isinstance(message, AgentMessage) for message in conversation.messages)
        return found[made] if made < len(found) else AgentMessage()


def _replies(record: EpisodeRecord) -> tuple[AgentMessage, ...]:
    spoken = (message for message in record.messages if isinstance(message, AgentMessage))
    return tuple(replace(message, usage=Usage(), seconds=0.0, native=None) for message in spoken)
