"""Isolated places for programs and files that nobody trusts: `async with await open_sandbox() as box`."""

from ors.errors import SandboxDead, SandboxLimit, SandboxUnavailable
from ors.sandbox.box import Sandbox, open_box
from ors.sandbox.pool import Pool
from ors.sandbox.process import Process, Snapshot
from ors.sandbox.spec import Allow, ExecResult, GradedCases, SandboxSpec, SandboxView

__all__ = [
    "Allow",
    "ExecResult",
    "GradedCases",
    "Pool",
    "Process",
    "Sandbox",
    "SandboxDead",
    "SandboxLimit",
    "SandboxSpec",
    "SandboxUnavailable",
    "SandboxView",
    "Snapshot",
    "open_sandbox",
]


async def open_sandbox(spec: SandboxSpec | None = None, *, files: Snapshot | None = None) -> Sandbox:
    """Opens a sandbox, with the files of a snapshot if one is given.

    Raises:
        SandboxUnavailable: none can be opened on this machine; the message says why, and what to do.
    """
    return await open_box(spec or SandboxSpec(), files)
