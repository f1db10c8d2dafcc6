"""Memory and files that a sandbox uses, and the limits on them. The agent runs this text too."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

LONGEST_COMMAND = 400
LONGEST_LISTING = 1 << 19
KINDS = {stat.S_IFREG: b"file", stat.S_IFDIR: b"folder", stat.S_IFLNK: b"link"}


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


def overview(pids: list[int], places: dict[bytes, bytes], most_pids: int, most_files: int) -> bytes:
    """Processes, places and files in the form that `view.py` reads. `places` has the true path of each."""
    fields: list[bytes] = []
    for pid in sorted(pids)[:most_pids]:
        fields += process_fields(pid)
    for shown, path in places.items():
        if path != shown:
            continue  # a folder of the host, without a size of its own
        usage = os.statvfs(path)
        used, size = usage.f_blocks - usage.f_bfree, usage.f_blocks
        numbers = (used * usage.f_frsize, size * usage.f_frsize, usage.f_files - usage.f_ffree)
        fields += [b"place", shown, *(b"%d" % number for number in numbers)]
    for kind, size, path in entries_below(places, most_files):
        fields += [b"entry", kind, b"%d" % size, path]
    return b"".join(field + b"\0" for field in fields)


def process_fields(pid: int) -> list[bytes]:
    """One process; nothing if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            name, _, rest = file.read().rpartition(b")")
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read(LONGEST_COMMAND).rstrip(b"\0").replace(b"\0", b" ")
    except OSError:
        return []
    words = rest.split()
    command = command or b"[%b]" % name.partition(b"(")[2]
    ticks = int(words[11]) + int(words[12])
    return [
        *(b"process", b"%d" % pid, words[1], words[0]),
        *(b"%d" % (int(words[21]) * 4096), b"%d" % ticks, command),
    ]


def entries_below(places: dict[bytes, bytes], most: int) -> Iterator[tuple[bytes, int, bytes]]:
    """Kind, size and path of the files in all places, the outer ones first."""
    todo, room = list(places.items()), LONGEST_LISTING
    while todo:
        folder, true = todo.pop(0)
        try:
            names = sorted(os.listdir(true))
        except OSError:
            continue  # removed meanwhile, or closed to its owner
        for name in names:
            try:
                info = os.lstat(os.path.join(true, name))
            except OSError:
                continue
            path = os.path.join(folder, name)
            most, room = most - 1, room - len(path)
            if most < 0 or room < 0:
                return
            yield KINDS.get(stat.S_IFMT(info.st_mode), b"other"), info.st_size, path
            if stat.S_ISDIR(info.st_mode):
                todo.append((path, os.path.join(true, name)))


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
