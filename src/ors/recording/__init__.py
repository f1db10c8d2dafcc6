"""Recording: the sessions of a server, and OpenReward's rollout log, as episodes of runs."""

from ors.recording.assembly import REWARD
from ors.recording.recorder import SessionRecorder

__all__ = ["REWARD", "SessionRecorder"]
