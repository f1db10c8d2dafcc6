"""SandboxObserver: notified of sandboxes. The seam between sandboxes and the server that counts them."""

from contextvars import ContextVar
from typing import Protocol


class SandboxObserver(Protocol):
    """Is notified of what happens to sandboxes."""

    def opened(self, seconds: float) -> None:
        """A sandbox was opened in so many seconds."""

    def closed(self) -> None:
        """A sandbox has ended."""

    def killed(self, limit: str) -> None:
        """A limit has ended a program: "time", "output", "memory", "inodes" or "unanswered"."""

    def waiting(self, change: int) -> None:
        """More or fewer callers wait for a sandbox of a pool."""


class _Nobody:
    def opened(self, seconds: float) -> None: ...
    def closed(self) -> None: ...
    def killed(self, limit: str) -> None: ...
    def waiting(self, change: int) -> None: ...


_NOBODY = _Nobody()
SANDBOX_OBSERVER: ContextVar[SandboxObserver] = ContextVar("ors_sandbox_observer", default=_NOBODY)
"""Notified of the sandboxes that are opened in this context; a server sets its own."""
