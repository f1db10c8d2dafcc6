"""Recording: the sessions of a server, and OpenReward's rollout log, as episodes of runs."""

from ors.recording.recorder import REWARD, SessionRecorder

__all__ = ["REWARD", "SessionRecorder"]
