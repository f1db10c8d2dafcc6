"""One episode: its task, as its agent sees it, and as it is kept in a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from ors._masking import Mask, masked
from ors.providers.messages import AgentMessage, Message, Usage
from ors.rollouts.episodes.outcome import Outcome, Stage
from ors.types import JSONObject, ToolSpec


@dataclass(frozen=True, slots=True)
class TaskRef:
    """A task: by split and index, or whole by its spec."""

    environment: str
    split: str | None = None
    index: int | None = None
    spec: JSONObject | None = None
    """With split and index: what is known of the task, usually without its private fields."""

    @property
    def is_whole(self) -> bool:
        """Whether the spec is all there is."""
        return self.spec is not None and (self.split is None or self.index is None)


@dataclass(slots=True)
class Conversation:
    """One episode as its agent sees it."""

    task: TaskRef
    sample: int = 0
    """The number of this episode among those of its task."""
    messages: list[Message] = field(default_factory=list)
    program: JSONObject | None = None
    """Set by an agent that ran a program for the episode: its exit status, and what it printed."""


@dataclass(frozen=True, slots=True)
class RunningEpisode:
    """An episode that is being played."""

    id: str
    """That of its record, later."""
    task: TaskRef
    sample: int
    stage: Stage
    turns: int
    """Replies of the agent so far."""
    seconds: float
    """Its age."""


class Agent(Protocol):
    """Plays episodes. One agent may play many at the same time: keep no state of an episode in it.

    It may also have a method `joining(conversation, tools)`, whose async context is entered after the prompt,
    and left when the episode is over. Such an agent gets the `@terminal` tool too.
    """

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        """Replies to the conversation so far, with text, tool calls or both.

        Raises:
            ModelError: the model provider failed. Any other error is the agent's own.
        """


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
    earlier: "tuple[EpisodeRecord, ...]" = ()
    """The attempts before this one, which failed. `usage` includes theirs."""
    components: Mapping[str, float] = field(default_factory=dict)
    """The named rewards, each reduced like `reward`. Those of a step are in its `ToolMessage`."""
    program: JSONObject | None = None
    """If the agent ran a program for the episode: its `exit` status, the end of its `output` and `errors`."""

    version: str | None = None
    """The version of the environment's package, if it is known."""
    hash: str | None = None
    """The hash of the environment's code and task files, if it is known."""

    def masked(self, mask: Mask | None) -> Self:
        """The same without the secrets that `mask` hides. What finds it again stays: task, agent and ids."""
        names = ("outcome", "messages", "tools", "program")
        told = {name: masked(getattr(self, name), mask) for name in names}
        return replace(self, task=replace(self.task, spec=masked(self.task.spec, mask)), **told)
