"""Rollouts: any agent plays any environment, and every episode ends with an outcome."""

from ors.rollouts.agent import Agent, ContextExceeded, Conversation, ModelError, TaskRef
from ors.rollouts.driver import Rollouts, rollouts
from ors.rollouts.episodes.limits import EpisodeLimits
from ors.rollouts.episodes.messages import (
    AgentMessage,
    Message,
    SystemMessage,
    ToolMessage,
    Usage,
    UserMessage,
)
from ors.rollouts.episodes.outcome import Failed, Outcome, Refused, Scored, Truncated, Unscored
from ors.rollouts.episodes.record import EpisodeRecord
from ors.rollouts.episodes.rewards import Reduction
from ors.rollouts.episodes.rules import PlayArguments, RolloutArguments
from ors.rollouts.episodes.stepped import SteppedEpisode
from ors.rollouts.play import play
from ors.rollouts.samplers import TaskSampler
from ors.rollouts.sync import SteppedEpisodeSync, play_sync, rollouts_sync
from ors.rollouts.task_key import EpisodeKey, TaskKey, episode_key, task_key

__all__ = [
    "Agent",
    "AgentMessage",
    "ContextExceeded",
    "Conversation",
    "EpisodeKey",
    "EpisodeLimits",
    "EpisodeRecord",
    "Failed",
    "Message",
    "ModelError",
    "Outcome",
    "PlayArguments",
    "Reduction",
    "Refused",
    "RolloutArguments",
    "Rollouts",
    "Scored",
    "SteppedEpisode",
    "SteppedEpisodeSync",
    "SystemMessage",
    "TaskKey",
    "TaskRef",
    "TaskSampler",
    "ToolMessage",
    "Truncated",
    "Unscored",
    "Usage",
    "UserMessage",
    "episode_key",
    "play",
    "play_sync",
    "rollouts",
    "rollouts_sync",
    "task_key",
]
