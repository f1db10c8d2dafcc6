"""The ways to make a sandbox: the seam, and the one that isolates nothing."""

import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ors.sandbox.cgroups import Cgroup
from ors.sandbox.inside import BOOT
from ors.sandbox.spec import SandboxSpec

log = logging.getLogger(__name__)


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


def begun(argv: Sequence[str], connection: int, errors: int, **more: Any) -> subprocess.Popen[bytes]:
    """Starts the first process of a sandbox, in a session of its own; the descriptors become its streams."""
    return subprocess.Popen(
        argv, stdin=connection, stdout=connection, stderr=errors, start_new_session=True, **more
    )


class Unisolated:
    """Programs beside the server, for code that is trusted. Only time and output are limited."""

    name = "none"
    isolates = False

    def __init__(self, *, warns: bool = True) -> None:
        self._warns = warns

    def missing(self, spec: SandboxSpec) -> Trouble | None:
        if spec.image or spec.rootfs or spec.writable or spec.mounts or spec.way_out:
            return Trouble(
                "it is the host itself", "leave out image, rootfs, writable, mounts, Allow and agents"
            )
        return None

    def launch(self, spec: SandboxSpec, connection: int, errors: int) -> Launched:
        if self._warns:
            log.warning(
                "sandbox backend 'none': nothing is isolated; programs have all rights of this process"
            )
        folder = tempfile.mkdtemp(prefix="ors-none-")
        for place in ("work", "home/agent"):
            os.makedirs(f"{folder}/{place}")
        process = begun([sys.executable, "-I", "-S", "-c", BOOT], connection, errors)
        told = {"limits": {}, "places": [], "changes": {}, "way_out": -1, "workdir": spec.workdir}
        # The agent removes the folder, also when this process is gone; if it is killed, this process does.
        remove = partial(shutil.rmtree, folder, ignore_errors=True)
        return Launched(process, {**told, "folder": folder}, kill=remove)

    def explain(self, spec: SandboxSpec, text: str) -> Trouble:
        return Trouble(text or "the agent exited immediately", f"{sys.executable} -I -S -c pass")
