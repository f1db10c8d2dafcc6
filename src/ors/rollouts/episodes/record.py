"""EpisodeRecord: one played episode, as it is kept in a run."""

from dataclasses import dataclass, field, replace
from typing import Self

from ors._masking import Mask, masked
from ors.rollouts.agent import TaskRef
from ors.rollouts.episodes.messages import Message, Usage
from ors.rollouts.episodes.outcome import Outcome
from ors.types import JSONObject, ToolSpec


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """One played episode."""

    id: str
    """Unique: 32 hexadecimal digits."""
    task: TaskRef
    sample: int
    """The number of this episode among those of its task."""
    outcome: Outcome
    reward: float | None
    """What the episode counts as, by the table of `ors.rollouts.episodes.scoring`; None leaves it out."""
    rewards: tuple[float | None, ...]
    """The reward of each step, in the order of the tool messages."""
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    usage: Usage = field(default_factory=Usage)
    agent: str = ""
    """The name of the agent, such as "openai:gpt-5"."""
    session: str | None = None
    """The id of the session."""
    started: float = 0.0
    """When the episode began: seconds since 1970."""
    seconds: float = 0.0
    attempts: int = 1
    """How often it was begun: failures of the infrastructure may be tried again."""
    metadata: JSONObject | None = None
    """Further facts about the episode, of whoever wrote the record."""
    earlier: "tuple[EpisodeRecord, ...]" = ()
    """The attempts before this one, which failed. `usage` includes theirs."""

    def masked(self, mask: Mask | None) -> Self:
        """The same without the secrets that `mask` hides. What finds it again stays: task, agent and ids."""
        names = ("outcome", "messages", "tools", "metadata")
        told = {name: masked(getattr(self, name), mask) for name in names}
        return replace(self, task=replace(self.task, spec=masked(self.task.spec, mask)), **told)
