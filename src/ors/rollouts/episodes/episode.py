"""One episode: its task, as its agent sees it, and as it is kept in a run."""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, Self

from ors._json import dumps, loads
from ors._masking import Mask, hidden, masked
from ors.client import AsyncEnvironment, AsyncSession, Task
from ors.errors import ORSError
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
    session: AsyncSession | None = field(default=None, repr=False, compare=False)
    """The session, for agents that work in its sandbox."""


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
    """Plays episodes. One agent may play many at the same time, so it must not keep the state of an episode.

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


GivenTask = TaskRef | Task | tuple[str, int]
"""A task: by a reference, whole, or as (split, index)."""


@dataclass(frozen=True, slots=True)
class TaskKey:
    """The identity of a task."""

    environment: str
    split: str | None
    index: int | None
    spec: str | None
    """Digest of a task that was given whole."""

    @property
    def label(self) -> str:
        """The task in a few characters, such as "test/3"."""
        return f"spec {self.spec}" if self.index is None else f"{self.split}/{self.index}"

    @property
    def order(self) -> tuple[str, str, int, str]:
        """The place of the task in a sorted list: by environment, split and index."""
        index = -1 if self.index is None else self.index
        return self.environment, self.split or "", index, self.spec or ""


def task_key(task: TaskRef) -> TaskKey:
    """The identity of a task, for sets and dictionaries."""
    digest = task_hash(task.spec) if task.spec is not None and task.is_whole else None
    split = None if task.split is None else sys.intern(task.split)
    return TaskKey(sys.intern(task.environment), split, task.index, digest)


def task_hash(spec: JSONObject) -> str:
    """The content of a task in 16 characters, which stay the same wherever the task is listed."""
    text = json.dumps(loads(dumps(spec)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


EpisodeKey = tuple[TaskKey, int]
"""Task and sample: which episode of a run it is."""


def episode_key(task: TaskRef, sample: int) -> EpisodeKey:
    """The key of an episode: the same task and sample have the same key in every run."""
    return task_key(task), sample


def task_of(session: AsyncSession) -> TaskRef:
    if session.task is None:
        return TaskRef(session.env.name, session.split, session.index)
    return TaskRef(session.task.environment_name or session.env.name, spec=session.task.task_spec)


def mask_of(session: AsyncSession) -> Mask | None:
    """Hides the secrets that a session was given; None if there are none."""
    return mask_secrets(session._secrets)


def mask_secrets(secrets: Mapping[str, str] | None) -> Mask | None:
    return partial(hidden, secrets=tuple(secrets.values())) if secrets else None


def task_ref(env: AsyncEnvironment, task: GivenTask) -> TaskRef:
    """The reference to a task of `env`.

    Raises:
        TypeError: it is not a task. ValueError: it is incomplete, or a task of another environment.
    """
    if isinstance(task, Task):
        return TaskRef(task.environment_name or env.name, spec=task.task_spec)
    if isinstance(task, tuple) and [type(part) for part in task] == [str, int]:
        return TaskRef(env.name, *task)
    if not isinstance(task, TaskRef):
        raise TypeError(f"A task is a TaskRef, a Task or (split, index), not {task!r:.200}")
    if task.spec is None and (task.split is None or task.index is None):
        raise ValueError(f"A task needs either a split and an index, or a spec: {task!r:.200}")
    if task.spec is None and task.environment != env.name:
        raise ValueError(f"The task is of the environment {task.environment!r}, not of {env.name!r}")
    return task


def session_for(env: AsyncEnvironment, task: TaskRef, secrets: Mapping[str, str] | None) -> AsyncSession:
    if task.spec is None or not task.is_whole:
        session = env.session(secrets=secrets, split=task.split, index=task.index)
    else:
        session = env.session(Task(task.environment, task.spec), secrets)
    session._forget_messages()  # the episode has its own
    return session


async def listed(env: AsyncEnvironment, task: TaskRef, secrets: Mapping[str, str] | None) -> TaskRef:
    """The task with what its server lists of it, without secrets; as it is if the server does not."""
    if task.spec is not None or task.split is None or task.index is None:
        return task
    try:
        found = await env.get_task(task.split, task.index)
    except ORSError:
        return task
    return replace(task, spec=masked(found.task_spec, mask_secrets(secrets)))
