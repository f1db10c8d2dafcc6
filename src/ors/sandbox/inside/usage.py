"""Memory and files that a sandbox uses, and the limits on them. The agent runs this text too."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


def processes() -> list[int]:
    """All processes of the sandbox but the agent, which is the first one."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def overuse(pids: list[int], settings: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Processes to end, each with the limit that is exceeded: all for the files, the largest for memory."""
    usage = [os.statvfs(place) for place in settings["places"]]
    if sum(each.f_files - each.f_ffree for each in usage) > settings["inodes"]:
        yield from ((pid, "inodes") for pid in pids)
    files = sum((each.f_blocks - each.f_bfree) * each.f_frsize for each in usage)
    most = settings["memory"]
    if pids and most and files + sum(resident(pid) for pid in pids) > most:
        sizes = {pid: proportional(pid) for pid in pids}
        if files + sum(sizes.values()) > most:
            yield max(sizes, key=sizes.__getitem__), "memory"


def resident(pid: int) -> int:
    """Memory of a process; what it shares with others counts in full."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * 4096
    except (OSError, IndexError):
        return 0


def proportional(pid: int) -> int:
    """Memory of a process; what it shares with others counts in part."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return 1024 * sum(int(line.split()[1]) for line in file if line.startswith(b"Pss:"))
    except (OSError, IndexError):
        return resident(pid)


def lock(settings: dict[str, Any]) -> None:
    """Sets the limits that programs inherit, and hides the agent's memory from them."""
    import resource

    for name, value in settings["limits"].items():
        kind = getattr(resource, "RLIMIT_" + name)
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    if settings["places"]:
        import _ctypes  # `ctypes` would load five modules more

        program: Any = None  # the library that is loaded already
        prctl = _ctypes.dlsym(_ctypes.dlopen(program, 0), "prctl")
        _ctypes.call_function(prctl, (4, 0, 0, 0, 0))  # PR_SET_DUMPABLE
