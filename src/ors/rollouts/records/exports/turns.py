"""The messages of an episode, grouped: each reply with the results of its calls."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ors.client import ToolInvocation
from ors.rollouts.episodes.messages import AgentMessage, Message, SystemMessage, ToolMessage, UserMessage


@dataclass(slots=True)
class Turn:
    """A reply with its calls and their results. Every call has an id."""

    reply: AgentMessage
    calls: dict[str, ToolInvocation]
    results: list[tuple[str | None, ToolMessage]] = field(default_factory=list)
    """Each with the id of its call; None if it belongs to no call, as that of a terminal tool."""

    @property
    def unanswered(self) -> list[str]:
        """Ids of calls without a result: they were not run, because the episode had ended."""
        answered = {id for id, _ in self.results}
        return [id for id in self.calls if id not in answered]

    def add(self, result: ToolMessage) -> None:
        """Adds a result. It belongs to the first unanswered call with its id; without one, of its tool."""
        same = (id for id in self.unanswered if self.calls[id].id == result.call)
        found = (id for id in same if result.call or self.calls[id].name == result.name)
        self.results.append((next(found, None), result))


def turns(messages: Iterable[Message]) -> Iterator[SystemMessage | UserMessage | Turn]:
    """Groups messages. Calls without an id of their own get one: some providers send none, or repeat one."""
    current: Turn | None = None
    count = 0
    for message in messages:
        if isinstance(message, ToolMessage):
            # A server that records its sessions may know the calls only.
            current = current or Turn(AgentMessage(), {})
            current.add(message)
            continue
        if current is not None:
            yield current
            current = None
        if isinstance(message, AgentMessage):
            current = Turn(message, {})
            for each in message.calls:
                id = each.id if each.id and each.id not in current.calls else f"ors_call_{count}"
                current.calls[id] = each
                count += 1
        else:
            yield message
    if current is not None:
        yield current
