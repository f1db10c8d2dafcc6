"""Counts the sandboxes that the server's environments open."""

from ors.server.observe.events import Observers, SandboxKilled, SandboxOpened


class SandboxCounts:
    """Sandboxes of this server: those that are open, and callers that wait for one."""

    def __init__(self, observers: Observers) -> None:
        self._observers = observers
        self.open = 0
        self.in_line = 0

    def opened(self, seconds: float) -> None:
        self.open += 1
        self._observers.tell(SandboxOpened(seconds))

    def closed(self) -> None:
        self.open -= 1

    def killed(self, limit: str) -> None:
        """Tells that a limit has ended a program."""
        self._observers.tell(SandboxKilled(limit))

    def waiting(self, change: int) -> None:
        """Counts callers that wait for a sandbox of a pool."""
        self.in_line += change
