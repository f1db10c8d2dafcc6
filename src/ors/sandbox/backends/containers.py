"""Sandboxes by a container engine, through its command: for images."""

import os
import secrets
import shutil
import subprocess
import tempfile

from ors.sandbox import seccomp
from ors.sandbox.backends import Launched, Trouble
from ors.sandbox.backends.bwrap import settings
from ors.sandbox.inside import BOOT
from ors.sandbox.spec import SandboxSpec

PLACES = ("/work", "/tmp", "/home", "/dev/shm")
START = 'exec $(command -v python3 || command -v python) -I -S -c "$0"'
"""Finds Python, which images have in different places."""


class Containers:
    """Sandboxes by docker or podman."""

    isolates = True

    def __init__(self, engine: str) -> None:
        self.name = engine

    def missing(self, spec: SandboxSpec) -> Trouble | None:
        """What is missing on this machine."""
        if shutil.which(self.name) is None:
            return Trouble(f"{self.name} is not installed", f"sudo apt-get install {_PACKAGES[self.name]}")
        if spec.image is None:
            return Trouble("no image is named", "SandboxSpec(image='docker.io/library/python:3.12-slim')")
        if spec.rootfs is not None:
            return Trouble("it runs images, not folders", f"{self.name} import FOLDER.tar NAME")
        return None

    def launch(self, spec: SandboxSpec, connection: int, errors: int) -> Launched:
        """Starts a container whose only process is the agent."""
        name = f"ors-{os.getpid()}-{secrets.token_hex(6)}"
        with tempfile.NamedTemporaryFile("w", prefix="ors-seccomp-", suffix=".json", delete=False) as profile:
            profile.write(seccomp.profile())
        os.chmod(profile.name, 0o644)
        process = subprocess.Popen(
            [self.name, "run", *self.arguments(spec, name, profile.name)],
            stdin=connection,
            stdout=connection,
            stderr=errors,
            start_new_session=True,
        )

        def kill() -> None:
            subprocess.run([self.name, "rm", "--force", name], capture_output=True, check=False)

        def started() -> None:
            os.unlink(profile.name)

        return Launched(process, settings(spec, list(PLACES), counted=True), kill=kill, started=started)

    def arguments(self, spec: SandboxSpec, name: str, profile: str) -> list[str]:
        """The arguments of `run`."""
        sizes = {"/work": spec.disk, "/tmp": spec.tmp, "/home": spec.tmp, "/dev/shm": spec.tmp}
        mounts = [
            word
            for place in PLACES
            for word in ("--tmpfs", f"{place}:rw,exec,nosuid,nodev,mode=1777,size={sizes[place]}")
        ]
        return [
            *("--interactive", "--rm", "--name", name, "--pull", "missing", "--read-only"),
            *("--network", spec.network, "--cap-drop", "ALL", "--user", "1000:1000", "--hostname", "sandbox"),
            *("--security-opt", "no-new-privileges", "--security-opt", f"seccomp={profile}"),
            *("--memory", str(spec.memory), "--memory-swap", str(spec.memory)),
            *("--pids-limit", str(spec.processes + 8), "--workdir", "/", "--log-driver", "none"),
            *mounts,
            *(word for path in spec.read_only for word in ("--volume", f"{path}:{path}:ro")),
            *("--entrypoint", "/bin/sh", str(spec.image), "-c", START, BOOT),
        ]

    def explain(self, spec: SandboxSpec, text: str) -> Trouble:
        """Says what the engine's error means."""
        if "python" in text or "exec: -I" in text:
            return Trouble(f"there is no Python in {spec.image}", "choose an image with Python 3.8 or newer")
        return Trouble(text or f"{self.name} ended at once", f"{self.name} run --rm {spec.image} true")


_PACKAGES = {"docker": "docker.io", "podman": "podman"}
