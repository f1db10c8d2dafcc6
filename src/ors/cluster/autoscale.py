"""How many hosts the load needs."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the greatest number of hosts, and how load decides between them."""

    least: int
    most: int
    sessions: int = 100
    """Target number of sessions per host."""
    calm_seconds: float = 60.0
    """A host is retired only when it was not needed for this long."""
    drain_seconds: float = 3600.0
    """A retired host keeps its sessions for at most this long."""

    def wanted(self, sessions: int) -> int:
        """Returns the number of hosts for a number of sessions."""
        return max(self.least, min(self.most, math.ceil(sessions / self.sessions)))


class ScaleDownDelay:
    """Delays scale-down until the load has stayed low."""

    def __init__(self) -> None:
        self._since: float | None = None

    def settled(self, wanted: int, there: int, bounds: Bounds, now: float) -> int:
        """Returns how many hosts there should be now: more at once, fewer after a delay."""
        if wanted >= there or there > bounds.most:
            self._since = None
            return wanted if wanted >= there else bounds.most
        if self._since is None:
            self._since = now
        return wanted if now - self._since >= bounds.calm_seconds else there
