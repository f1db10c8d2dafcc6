"""Rollouts: any agent plays any environment, and every episode ends with an outcome."""

from ors.rollouts.agent import Agent, ContextExceeded, Conversation, ModelError, TaskRef
from ors.rollouts.messages import (
    AgentMessage,
    Message,
    SystemMessage,
    ToolMessage,
    Usage,
    UserMessage,
)
from ors.rollouts.outcome import Failed, Outcome, Scored, Truncated, Unscored
from ors.rollouts.record import EpisodeRecord

__all__ = [
    "Agent",
    "AgentMessage",
    "ContextExceeded",
    "Conversation",
    "EpisodeRecord",
    "Failed",
    "Message",
    "ModelError",
    "Outcome",
    "Scored",
    "SystemMessage",
    "TaskRef",
    "ToolMessage",
    "Truncated",
    "Unscored",
    "Usage",
    "UserMessage",
]
