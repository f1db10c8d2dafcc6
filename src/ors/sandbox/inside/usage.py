"""Memory and files that a sandbox uses, and the limits on them. The agent runs this text too."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

LONGEST_COMMAND = 400
LONGEST_LISTING = 1 << 19
MOST_PROCESSES, MOST_FILES = 200, 1000
MOST_TERMINALS = 256
FEW_SOCKETS = 8
KINDS = {stat.S_IFREG: b"file", stat.S_IFDIR: b"folder", stat.S_IFLNK: b"link"}


def processes() -> list[int]:
    """All processes of the sandbox but the agent, which is the first one."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def overuse(pids: list[int], settings: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Processes to end, each with the limit that is exceeded: all for the files, the largest for memory."""
    usage = [os.statvfs(place) for place in settings["places"]]
    terminals = len(os.listdir("/dev/pts"))  # of a number that all sandboxes share
    if terminals > MOST_TERMINALS or sum(each.f_files - each.f_ffree for each in usage) > settings["inodes"]:
        yield from ((pid, "inodes") for pid in pids)
    files = sum((each.f_blocks - each.f_bfree) * each.f_frsize for each in usage)
    most = settings["memory"]
    if pids and settings["sockets"] and in_sockets() > settings["sockets"]:
        yield from ((pid, "memory") for pid in pids)  # whoever holds them
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


def in_sockets() -> int:
    """Memory of all sockets, which belongs to no process; sock_diag(7) tells it."""
    with open("/proc/net/sockstat", "rb") as file:
        if int(file.read().split()[2]) < FEW_SOCKETS:
            return 0
    import _socket
    import struct

    total, link = 0, _socket.socket(16, 3, 4)  # netlink, raw, sock_diag
    for family, protocol in ((1, 0), (2, 6), (2, 17), (10, 6), (10, 17)):
        unix = family == 1
        asked = bytes([family, protocol, 0 if unix else 64, 0]) + b"\xff" * 4  # in all states
        asked += struct.pack("=4xI8x", 32) if unix else bytes(48)
        link.send(struct.pack("=IHHII", 16 + len(asked), 20, 0x301, 0, 0) + asked)
        data, kind = b"", 20
        while kind == 20:
            data = data or link.recv(1 << 18)
            length, kind = struct.unpack_from("=IH", data)
            at = 32 if unix else 88
            while kind == 20 and at < length:
                size, attribute = struct.unpack_from("=HH", data, at)
                if attribute == (5 if unix else 7):  # received, to be sent, reserved, queued
                    total += sum(struct.unpack_from("=I4xI4xII", data, at + 4))
                at += size + 3 & ~3
            data = data[length + 3 & ~3 :]
    link.close()
    return total


def overview(pids: list[int], places: dict[bytes, bytes], listed: dict[bytes, bytes]) -> bytes:
    """Processes, places and listed files in the form that `spec.py` reads; each folder has its true path."""
    fields: list[bytes] = []
    for pid in sorted(pids)[:MOST_PROCESSES]:
        fields += process_fields(pid)
    for shown, path in places.items():
        if path != shown:
            continue  # a folder of the host, without a size of its own
        usage = os.statvfs(path)
        used, size = usage.f_blocks - usage.f_bfree, usage.f_blocks
        numbers = (used * usage.f_frsize, size * usage.f_frsize, usage.f_files - usage.f_ffree)
        fields += [b"place", shown, *(b"%d" % number for number in numbers)]
    for kind, size, path in entries_below(listed):
        fields += [b"entry", kind, b"%d" % size, path]
    return b"".join(field + b"\0" for field in fields)


def process_fields(pid: int) -> list[bytes]:
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
    memory = int(words[21]) * 4096
    return [b"process", b"%d" % pid, words[1], words[0], b"%d" % memory, b"%d" % ticks, command]


def entries_below(places: dict[bytes, bytes]) -> Iterator[tuple[bytes, int, bytes]]:
    """Kind, size and path of the files in all places, the outer ones first."""
    todo, most, room = list(places.items()), MOST_FILES, LONGEST_LISTING
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


def open_way_out(fd: int, port: int) -> None:
    """Sends a socket that listens on the loopback to the server, whose proxy answers on it."""
    import _socket

    listener, server = _socket.socket(2, 1), _socket.socket(1, 1, 0, fd)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    rights = listener.fileno().to_bytes(4, "little")  # both kinds of machine
    server.sendmsg([b"L"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    listener.close()
    server.close()


def lock(settings: dict[str, Any]) -> None:
    """Sets the limits that programs inherit, and hides the agent's memory from them."""
    import resource

    for name, value in settings["limits"].items():
        kind = getattr(resource, "RLIMIT_" + name)
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # A hard limit of CPU time would end the agent, which ignores the signal of a soft one.
        resource.setrlimit(kind, (value, hard if name == "CPU" else value))
    import _ctypes  # `ctypes` would load five modules more

    program: Any = None  # the library that is loaded already
    library = _ctypes.dlopen(program, 0)

    def call(name: str, *arguments: object) -> None:
        _ctypes.call_function(_ctypes.dlsym(library, name), arguments)

    if not settings["places"]:
        call("prctl", 36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans come here, as in a namespace
        return
    if settings["agent"]:
        part(settings["agent"], call)
    call("prctl", 4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


def part(agent: int, call: Callable[..., None]) -> None:
    """Gives the agent a user and group of its own. Programs get the real ones, and files too."""
    user = os.getuid()
    os.setresgid(user, agent, agent)
    os.setresuid(user, agent, agent)
    call("capset", b"\x22\x05\x08\x20" + bytes(4), bytes(24))  # none
    call("setfsgid", user)
    call("setfsuid", user)
    call("prctl", 1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, which a change of user resets
