"""Recording: the sessions of a server, and OpenReward's rollout log, as episodes of runs."""

from ors.recording.recorder import REWARD, SessionRecorder
from ors.recording.rollout_log import REWARD as LOGGED_REWARD

__all__ = ["LOGGED_REWARD", "REWARD", "SessionRecorder"]
