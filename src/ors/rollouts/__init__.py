"""Rollouts: any agent plays any environment, and every episode ends with an outcome."""

from ors.providers.errors import ContextExceeded, ModelError
from ors.providers.messages import AgentMessage, Message, SystemMessage, ToolMessage, Usage, UserMessage
from ors.rollouts.driver import Rollouts, play_sync, rollouts, rollouts_sync
from ors.rollouts.episodes.episode import (
    Agent,
    Conversation,
    EpisodeKey,
    EpisodeRecord,
    RunningEpisode,
    TaskKey,
    TaskRef,
    episode_key,
    task_hash,
    task_key,
)
from ors.rollouts.episodes.outcome import Failed, Outcome, Refused, Scored, Truncated, Unscored
from ors.rollouts.episodes.played import play
from ors.rollouts.episodes.rules import EpisodeLimits, PlayArguments, Reduction, RolloutArguments, Rules
from ors.rollouts.episodes.stepped import SteppedEpisode, SteppedEpisodeSync
from ors.rollouts.regression import Transcript
from ors.rollouts.samplers import TaskSampler

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
    "Rules",
    "RunningEpisode",
    "Scored",
    "SteppedEpisode",
    "SteppedEpisodeSync",
    "SystemMessage",
    "TaskKey",
    "TaskRef",
    "TaskSampler",
    "ToolMessage",
    "Transcript",
    "Truncated",
    "Unscored",
    "Usage",
    "UserMessage",
    "episode_key",
    "play",
    "play_sync",
    "rollouts",
    "rollouts_sync",
    "task_hash",
    "task_key",
]
