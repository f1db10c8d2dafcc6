"""The ways to make a sandbox: the seam, and the choice among them."""

import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ors.sandbox.cgroups import Cgroup
from ors.sandbox.spec import SandboxSpec


@dataclass(frozen=True, slots=True)
class Launched:
    """A process whose standard input and output belong to the agent of a new sandbox."""

    process: subprocess.Popen[bytes]
    settings: Mapping[str, Any]
    """What the agent is told first."""
    cgroup: Cgroup | None = None
    way_out: socket.socket | None = None
    """Where the agent sends the listening socket of the proxy, if it needs one."""
    join: Callable[[], None] = field(default=lambda: None)
    """Puts the sandbox into its control groups. Called in a thread, before the first request."""
    kill: Callable[[], object] = field(default=lambda: None)
    """Ends the sandbox by force, in addition to the process."""
    ended: Callable[[], None] = field(default=lambda: None)
    """Removes what is left when the process has ended; may block."""
    started: Callable[[], object] = field(default=lambda: None)
    """Removes what only the start needs."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a backend cannot be used here, and the command that mends it."""

    why: str
    mend: str


class SandboxBackend(Protocol):
    name: str
    isolates: bool

    def missing(self, spec: SandboxSpec) -> Trouble | None:
        """Reports what this machine lacks, as far as a look can tell."""

    def launch(self, spec: SandboxSpec, connection: int, errors: int) -> Launched:
        """Starts the agent; the file descriptors become its standard streams.

        Raises:
            OSError: a command cannot be started.
        """

    def explain(self, spec: SandboxSpec, text: str) -> Trouble:
        """Says what a failed start means, from its error output."""
