"""Recording: the sessions of a server as episodes of a run."""

from ors.recording.recorder import SessionRecorder
from ors.recording.session import REWARD

__all__ = ["REWARD", "SessionRecorder"]
