"""No sandbox at all: programs run as the server's user, with its files and its network."""

import logging
import os
import shutil
import subprocess
import sys
import tempfile

from ors.sandbox.backends import Launched, Trouble
from ors.sandbox.inside import BOOT
from ors.sandbox.spec import Allow, SandboxSpec

log = logging.getLogger(__name__)


class Unisolated:
    """Programs beside the server, for code that is trusted. Only time and output are limited."""

    name = "none"
    isolates = False

    def __init__(self, *, warns: bool = True) -> None:
        self._warns = warns

    def missing(self, spec: SandboxSpec) -> Trouble | None:
        if spec.image or spec.rootfs or spec.writable or spec.mounts or isinstance(spec.network, Allow):
            return Trouble("it is the host itself", "leave out image, rootfs, writable, mounts and Allow")
        return None

    def launch(self, spec: SandboxSpec, connection: int, errors: int) -> Launched:
        """Starts the agent as a plain process, and says so."""
        if self._warns:
            log.warning(
                "sandbox backend 'none': nothing is isolated; programs can do all that this process can"
            )
        folder = tempfile.mkdtemp(prefix="ors-none-")
        for place in ("work", "home/agent"):
            os.makedirs(f"{folder}/{place}")
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", BOOT],
            stdin=connection,
            stdout=connection,
            stderr=errors,
            start_new_session=True,
        )
        told = {"limits": {}, "places": [], "changes": {}, "way_out": -1, "workdir": spec.workdir}
        # The agent removes the folder, also when this process is gone; if it is killed, this process does.
        return Launched(
            process, {**told, "folder": folder}, kill=lambda: shutil.rmtree(folder, ignore_errors=True)
        )

    def explain(self, spec: SandboxSpec, text: str) -> Trouble:
        return Trouble(text or "the agent exited immediately", f"{sys.executable} -I -S -c pass")
