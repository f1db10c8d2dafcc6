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
        """Adds a result. One without an id belongs to the first unanswered call of its tool."""
        if result.call is not None:
            found = result.call if result.call in self.calls else None
        else:
            same = (id for id in self.unanswered if self.calls[id].name == result.name)
            found = next(same, None)
        self.results.append((found, result))


def turns(messages: Iterable[Message]) -> Iterator[SystemMessage | UserMessage | Turn]:
    """Groups messages. Calls without an id get one, as some providers have none."""
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
            calls = {each.id or f"ors_call_{count + n}": each for n, each in enumerate(message.calls)}
            count += len(calls)
            current = Turn(message, calls)
        else:
            yield message
    if current is not None:
        yield current
