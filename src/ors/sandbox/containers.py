"""Sandboxes by a container engine, through its command: for images."""

import os
import secrets
import shutil
import subprocess
import tempfile
from functools import cache, partial

from ors.sandbox import seccomp
from ors.sandbox.backends import Launched, Trouble, begun
from ors.sandbox.bwrap import settings
from ors.sandbox.cgroups import SPARE
from ors.sandbox.inside import BOOT
from ors.sandbox.spec import SandboxSpec

FIRST_UID, UIDS = 10_000, 50_000
"""Users that also an engine without root can give: it has 65,536 of them."""
PODMAN = ("--http-proxy=false", "--read-only-tmpfs=false")
"""podman passes the host's proxies on, and adds writable places without a limit."""
START = 'exec $(command -v python3 || command -v python) -I -S -c "$0"'
"""Finds Python, which images have in different places."""


class Containers:
    isolates = True

    def __init__(self, engine: str) -> None:
        self.name = engine

    def missing(self, spec: SandboxSpec) -> Trouble | None:
        if shutil.which(self.name) is None:
            return Trouble(f"{self.name} is not installed", f"sudo apt-get install {_PACKAGES[self.name]}")
        if spec.image is None:
            return Trouble("no image is given", "SandboxSpec(image='docker.io/library/python:3.12-slim')")
        if spec.rootfs is not None:
            return Trouble("it runs images, not folders", f"{self.name} import FOLDER.tar NAME")
        if spec.writable or spec.way_out:
            return Trouble("it has no writable root, and no way out", "leave out writable, Allow and agents")
        return None

    def launch(self, spec: SandboxSpec, connection: int, errors: int) -> Launched:
        name, counted = f"ors-{os.getpid()}-{secrets.token_hex(6)}", _counts(self.name)
        with tempfile.NamedTemporaryFile("w", prefix="ors-seccomp-", suffix=".json", delete=False) as profile:
            profile.write(seccomp.profile(counted=counted))
        os.chmod(profile.name, 0o644)
        command = [str(shutil.which(self.name)), "run", *self.arguments(spec, name, profile.name)]
        # podman would leave a file named oom in another folder.
        process = begun(command, connection, errors, cwd="/proc")
        remove = [self.name, "rm", "--force", name]
        kill = partial(subprocess.run, remove, capture_output=True, check=False)
        told = settings(spec, None, counted=counted)
        return Launched(process, told, kill=kill, started=partial(os.unlink, profile.name))

    def arguments(self, spec: SandboxSpec, name: str, profile: str) -> list[str]:
        """The arguments of `run`. Limits on processes count by user, so each sandbox has its own."""
        uid = FIRST_UID + secrets.randbelow(UIDS)
        sizes = {place: size for place, size in spec.sizes.items() if place != "/dev/shm"}
        options = "rw,exec,nosuid,nodev,mode=1777"
        mounts = [word for place in sizes for word in ("--tmpfs", f"{place}:{options},size={sizes[place]}")]
        shown = [f"{path}:{path}:ro" for path in spec.read_only]
        for path, source in spec.mounts.items():
            shown += [f"{source.removesuffix(':rw')}:{path}:{'rw' if source.endswith(':rw') else 'ro'}"]
        return [
            *("--interactive", "--rm", "--name", name, "--pull", "missing", "--read-only"),
            *("--network", str(spec.network), "--hostname", "sandbox", "--user", f"{uid}:{uid}"),
            *("--cap-drop", "ALL", "--ulimit", f"nofile={spec.open_files}:{spec.open_files}"),
            *("--ulimit", f"nproc={spec.processes + SPARE}:{spec.processes + SPARE}"),
            *(PODMAN if self.name == "podman" else ()),
            *("--security-opt", "no-new-privileges", "--security-opt", f"seccomp={profile}"),
            *("--memory", str(spec.memory), "--memory-swap", str(spec.memory)),
            *("--pids-limit", str(spec.processes + SPARE), "--workdir", "/", "--log-driver", "none"),
            *("--shm-size", str(spec.tmp), *mounts),
            *(word for volume in shown for word in ("--volume", volume)),
            *("--entrypoint", "/bin/sh", str(spec.image), "-c", START, BOOT),
        ]

    def explain(self, spec: SandboxSpec, text: str) -> Trouble:
        if "python" in text or "exec: -I" in text:
            return Trouble(f"there is no Python in {spec.image}", "choose an image with Python 3.8 or newer")
        return Trouble(text or f"{self.name} exited immediately", f"{self.name} run --rm {spec.image} true")


@cache
def _counts(engine: str) -> bool:
    """Whether the engine bounds memory. Without root, on control groups of version 1, podman cannot."""
    asked = {"podman": "{{.Host.CgroupControllers}}", "docker": "memory={{.MemoryLimit}}"}[engine]
    done = subprocess.run([engine, "info", "--format", asked], capture_output=True, text=True, check=False)
    return "memory" in done.stdout and "memory=false" not in done.stdout


_PACKAGES = {"docker": "docker.io", "podman": "podman"}
