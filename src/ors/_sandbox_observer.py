"""SandboxObserver: hears of sandboxes. The seam between sandboxes and the server that counts them."""

from contextvars import ContextVar
from typing import Protocol


class SandboxObserver(Protocol):
    """Hears what happens to sandboxes."""

    def opened(self, seconds: float) -> None:
        """Hears that a sandbox was opened, and how long that took."""

    def closed(self) -> None:
        """Hears that a sandbox has ended."""

    def killed(self, limit: str) -> None:
        """Hears that a limit has ended a program: "time", "output", "memory", "inodes" or "unanswered"."""

    def waiting(self, change: int) -> None:
        """Hears that more or fewer callers wait for a sandbox of a pool."""


class _Nobody:
    def opened(self, seconds: float) -> None: ...
    def closed(self) -> None: ...
    def killed(self, limit: str) -> None: ...
    def waiting(self, change: int) -> None: ...


_NOBODY = _Nobody()
SANDBOX_OBSERVER: ContextVar[SandboxObserver] = ContextVar("ors_sandbox_observer", default=_NOBODY)
"""Hears of the sandboxes that are opened in this context; a server sets its own."""
