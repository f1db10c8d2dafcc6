"""How many hosts there are to be."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """At least and at most so many; between them, by load."""

    least: int
    most: int
    sessions: int = 100
    """A host for each so many sessions."""
    calm_seconds: float = 60.0
    """A host goes only when it was not needed for this long."""
    drain_seconds: float = 3600.0
    """A host that goes keeps its sessions for so long."""

    def wanted(self, sessions: int) -> int:
        """The number of hosts for so many sessions."""
        return max(self.least, min(self.most, math.ceil(sessions / self.sessions)))


class ScaleDownDelay:
    """Tells a moment in which fewer hosts would do from a time in which they would."""

    def __init__(self) -> None:
        self._since: float | None = None

    def settled(self, wanted: int, there: int, bounds: Bounds, now: float) -> int:
        """How many hosts there should be now: more at once, fewer after a while."""
        if wanted >= there or there > bounds.most:
            self._since = None
            return wanted if wanted >= there else bounds.most
        if self._since is None:
            self._since = now
        return wanted if now - self._since >= bounds.calm_seconds else there
