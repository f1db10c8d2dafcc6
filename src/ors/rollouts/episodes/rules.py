"""Rules: how episodes are played."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Required, TypedDict

from ors.rollouts.episodes.limits import EpisodeLimits
from ors.rollouts.episodes.outcome import Party
from ors.rollouts.episodes.rewards import Reduction, reducer
from ors.rollouts.episodes.scoring import Scoring
from ors.rollouts.task_key import EpisodeKey


class PlayArguments(TypedDict, total=False):
    """How episodes are played: arguments of `play` and of `rollouts`."""

    reward: Required[Reduction]
    """How the rewards of the steps become one: "last", "sum", "max" or a function. There is no default."""
    limits: EpisodeLimits
    """When an episode is truncated: never, by default."""
    truncated_reward: float | None
    """The reward of a truncated episode in which no step had one: None by default."""
    unscored_reward: float | None
    """The reward of an episode that ended, or was refused, without any: None by default."""
    failed_reward: Mapping[Party, float]
    """The reward of an episode that failed, by who failed, whatever it earned: by default it has none."""
    system: str | None
    """Instructions for the agent that come before the prompt."""
    nudge: str | None
    """Sent to the agent after its first message without a tool call. Without it, that ends the episode."""
    parallel: bool
    """Whether the calls of one message are sent together instead of one after the other."""
    agent_name: str
    """The agent's name in the records."""


class RolloutArguments(PlayArguments, total=False):
    """Which episodes are played, and how many at once: arguments of `rollouts`, besides those of `play`."""

    samples: int
    """Episodes of each task. Of a sequence of tasks, all are played once before any is played again."""
    concurrency: int
    """Most episodes that run, or have ended and wait to be taken: 64 by default."""
    model_requests: int | None
    """Most replies that the agent works on at the same time. Waiting is not time of the episode."""
    retries: int
    """How often an episode begins anew, in a new session, after a failure of the infrastructure."""
    skip: Container[EpisodeKey]
    """Keys of episodes that are not played: see `episode_key`."""
    secrets: Mapping[str, str] | None
    """Secrets for the environment."""
    keep_tasks: bool
    """Whether records keep tasks that are played by index, as the server lists them: one more request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The same arguments with their defaults."""

    reward: Reduction
    limits: EpisodeLimits = field(default_factory=EpisodeLimits)
    truncated_reward: float | None = None
    unscored_reward: float | None = None
    failed_reward: Mapping[Party, float] = field(default_factory=dict)
    system: str | None = None
    nudge: str | None = None
    parallel: bool = False
    agent_name: str = ""

    def __post_init__(self) -> None:
        reducer(self.reward)
        self.scoring()

    def scoring(self) -> Scoring:
        """What episodes without a reward get."""
        return Scoring(self.unscored_reward, self.truncated_reward, self.failed_reward)
