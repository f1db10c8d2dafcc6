"""Control groups: limits on all processes of a sandbox together, in both versions of the interface."""

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ors.sandbox.spec import SandboxSpec

SPARE = 8
"""Processes of a group that are not the agent's programs: bwrap, the agent, and those that copy files."""
PERIOD = 100_000
"""Microseconds of a period, of which each CPU of a limit has so many; the kernel's own default."""
SOCKETS = "memory.kmem.tcp.limit_in_bytes"
"""Version 1 counts the buffers of sockets by themselves."""
OPTIONAL = {"memory.swap.max", "memory.memsw.limit_in_bytes", SOCKETS, "cpu.max"}
"""Limits that do not exist where there is no swap accounting, or that may not be delegated."""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The groups of one sandbox: one in version 2, one for each controller in version 1."""

    folders: tuple[Path, ...]

    def add(self, pid: int) -> None:
        """Puts a process into the groups; its later children are in them too."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def oom_kills(self) -> int:
        """How many processes the kernel has killed for their memory."""
        words = self._read("memory.events", "memory.oom_control").split()
        return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0

    def memory(self) -> int:
        return int(self._read("memory.current", "memory.usage_in_bytes") or 0)

    def _read(self, *names: str) -> str:
        """The first of these files that a group has: version 2 has other names than version 1."""
        for file in (folder / name for folder in self.folders for name in names):
            with suppress(OSError):
                return file.read_text()
        return ""

    def remove(self) -> bool:
        """Removes the groups; says whether that was possible: no process may be left in them."""
        for folder in self.folders:
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return True


def counts_sockets(group: Cgroup | None) -> bool:
    """Whether the kernel counts the buffers of sockets as memory of a sandbox."""
    folders = () if group is None else group.folders
    paths = [Path("/sys/fs/cgroup/cgroup.controllers"), *(folder / SOCKETS for folder in folders)]
    return any(path.exists() for path in paths)


def create(spec: SandboxSpec) -> Cgroup | None:
    """Groups with the limits of a sandbox; None where this process may not make any."""
    name = f"ors-{os.getpid()}-{secrets.token_hex(6)}"
    made: list[Path] = []
    try:
        for parent, limits in _parents(spec):
            folder = parent / name
            folder.mkdir()
            made.append(folder)
            for file, value in limits.items():
                if file not in OPTIONAL or (folder / file).exists():
                    (folder / file).write_text(str(value))
    except OSError:
        Cgroup(tuple(made)).remove()
        return None
    return Cgroup(tuple(made)) if made else None


def _parents(spec: SandboxSpec) -> Iterator[tuple[Path, dict[str, int]]]:
    """Where groups can be made, and the limits to set in each. Raises OSError: they cannot."""
    mounts, own = dict(_mounts()), dict(_own())
    pids = {"pids.max": spec.processes + SPARE}
    quota = {"cpu.max": int(spec.cpus * PERIOD)} if spec.cpus else {}
    if "memory" in mounts and "pids" in mounts:
        memory = {"memory.limit_in_bytes": spec.memory, "memory.memsw.limit_in_bytes": spec.memory}
        memory[SOCKETS] = spec.memory // 4
        yield _below(mounts["memory"], own["memory"]), memory
        yield _below(mounts["pids"], own["pids"]), pids
        if "cpu" in mounts:  # a share for the sandbox, not for each of its processes
            yield _below(mounts["cpu"], own["cpu"]), quota and {"cpu.cfs_quota_us": quota["cpu.max"]}
    elif "" in mounts:
        memory = {"memory.max": spec.memory, "memory.swap.max": 0}
        yield _delegated(mounts[""], own[""]), {**memory, **pids, **quota}


def _delegated(mount: Path, own: str) -> Path:
    # A group that holds processes cannot hold groups with limits. So ours stand beside the server's own.
    if own == "/":
        (mount / "cgroup.subtree_control").write_text("+memory +pids")
        with suppress(OSError):
            (mount / "cgroup.subtree_control").write_text("+cpu")
        return mount
    folder = mount / own.lstrip("/")
    if not folder.is_dir() or ".." in folder.parts:
        raise FileNotFoundError(f"{folder} is not visible from here")
    return folder.parent


def _below(mount: Path, own: str) -> Path:
    # In a container the file names a group of the host, which is not below the mount.
    folder = mount / own.lstrip("/")
    return folder if folder.is_dir() else mount


def _mounts() -> Iterator[tuple[str, Path]]:
    """Mounted hierarchies by controller; version 2 under the empty name."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup2":
            yield "", Path(folder)
        elif kind == "cgroup":
            yield from ((option, Path(folder)) for option in options.split(","))


def _own() -> Iterator[tuple[str, str]]:
    """The groups of this process by controller."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        yield from ((controller, group) for controller in controllers.split(","))
