"""Recording: the sessions of a server as episodes of a run."""

from ors.recording.assembly import REWARD
from ors.recording.recorder import SessionRecorder

__all__ = ["REWARD", "SessionRecorder"]
