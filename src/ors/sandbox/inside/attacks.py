"""Attacks of the battery that run inside a sandbox, as a program of its own: `python3 -I - TARGETS NAME…`.

It prints a line of JSON for each: what was achieved, or nothing. It does no lasting harm where it is not
isolated.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

REFUSED = (errno.EPERM, errno.ENOSYS, errno.EACCES, errno.EAFNOSUPPORT)
ARGUMENTS = """
acct 1, reboot 0 0 0 0, settimeofday 0 1, clock_settime -1 0, sethostname 0 -1, setdomainname 0 -1,
kexec_load 0 0 0 255, kexec_file_load -1 -1 0 0 -1, setns -1 0, pidfd_getfd -1 -1 0, ptrace 16 0 0 0,
finit_module -1 0 0, bpf -1 0 0, keyctl -1 0 0 0 0, userfaultfd -1, fanotify_init -1 0, syslog 99 0 0,
open_tree -1 0 -1, name_to_handle_at -1 0 0 0 0
"""
"""Arguments that the kernel refuses by another error than the filter's. All zeros otherwise."""
GROW = "import sys, time; held = b'x' * int(sys.argv[1]); print(flush=True); time.sleep(60)"
LIBC = ctypes.CDLL(None, use_errno=True)


def called(number: int, *arguments: int) -> int:
    result: int = LIBC.syscall(number, *(ctypes.c_long(each) for each in arguments))
    return result


def reaches(targets: dict[str, Any], name: str, *arguments: int) -> str:
    """Whether a system call gets past the filter to the kernel; made by a child, which it may change."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        result = called(targets["numbers"][name], *arguments)
        if result >= 0 or ctypes.get_errno() not in REFUSED:
            os.write(writer, f"{name} returned {result}, {os.strerror(ctypes.get_errno())}".encode())
        os._exit(0)
    os.close(writer)
    os.wait()
    with open(reader) as found:
        return found.read()


def with_arguments(targets: dict[str, Any], name: str) -> str:
    rows = map(str.split, ARGUMENTS.split(","))
    words = next((words for first, *words in rows if first == name), ["0"] * 6)
    return reaches(targets, name, *map(int, words))


def read(path: str) -> str:
    if os.path.isdir(path):
        return " ".join(os.listdir(path))[:60]
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
        return repr((file.read(8192) or b"")[:40])


def seen(file: str, wanted: str) -> str:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/{file}", "rb") as content:
            if wanted.encode() in content.read().replace(b"=", b"\0").split(b"\0"):
                return f"{wanted} is in /proc/{pid}/{file}"
    return ""


def connect(family: int, address: Any, kind: int = socket.SOCK_STREAM) -> str:
    """Connects to an address. A datagram socket sends nothing by that: it only needs a route."""
    with socket.socket(family, kind) as client:
        client.settimeout(3)
        client.connect(address)
        return f"connected to {address!r}"


def write_outside(targets: dict[str, Any]) -> str:
    for folder in (targets["folder"], "/usr", "/etc", "/", "/usr/local/bin", "/var/tmp", "/dev", "/run"):
        with contextlib.suppress(OSError), open(f"{folder}/{targets['mark']}", "w") as file:
            file.write("here")
    return ""


def block_device(targets: dict[str, Any]) -> str:
    """Reads a disk of the host, by its name or by a device file of its own."""
    disk, *number = targets["disk"]
    for path in (disk, "/tmp/ors-disk", "/dev/shm/ors-disk"):
        try:
            if not os.path.exists(path):
                os.mknod(path, 0o60600, os.makedev(*number))
            with open(path, "rb", buffering=0) as file:
                return f"read {len(file.read(512))} bytes of {path}"
        except OSError:
            continue
        finally:
            if path.endswith("ors-disk") and os.path.exists(path):
                os.unlink(path)
    return ""


def kill_process(targets: dict[str, Any]) -> str:
    os.kill(targets["victim"], 9)
    return ""  # the server sees whether it is dead


def host_descriptor(targets: dict[str, Any]) -> str:
    """Looks for inherited file descriptors, and for those of other processes."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found += [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    return next((f"descriptor of {each}" for each in found if targets["folder"] in each), "")


def own_loopback(targets: dict[str, Any]) -> str:
    server = socket.create_server(("127.0.0.1", 0))
    with server, socket.create_connection(server.getsockname(), timeout=3):
        return "works"


def fork_bomb(targets: dict[str, Any]) -> str:
    children = []
    with contextlib.suppress(OSError):
        for _ in range(targets["processes"] * 4):
            children.append(subprocess.Popen(["sleep", "60"]))
    for child in children:
        child.kill()
        child.wait()
    return f"{len(children)} processes" if len(children) > targets["processes"] else ""


def much_together(targets: dict[str, Any]) -> str:
    command = ["python3", "-I", "-c", GROW, str(targets["memory"] // 4)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(8)]
    holding = [child for child in children if child.stdout and child.stdout.read(1)]  # b"": it was killed
    time.sleep(0.5)  # without control groups, memory is looked at ten times a second
    alive = [child for child in holding if child.poll() is None]
    for child in children:
        child.kill()
        child.wait()
    return f"{len(alive)} processes of {targets['memory'] >> 22} MB" if len(alive) > 4 else ""


def fill(targets: dict[str, Any]) -> str:
    most, found = 2 * targets["size"], []
    places = "/tmp /home /home/agent /dev/shm /dev /run / /var/tmp /mnt"
    for folder in (targets["work"], *places.split()):
        path = f"{folder}/{targets['mark']}-fill"
        with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
            while file.tell() < most:
                file.write(bytes(2**20))
            found.append(folder)
        if os.path.exists(path):
            os.unlink(path)
    return f"wrote {most >> 20} MB to {', '.join(found)}" if found else ""


def many_files(targets: dict[str, Any]) -> str:
    folder = f"{targets['work']}/many"
    os.mkdir(folder)
    for number in range(targets["inodes"] * 12):
        os.close(os.open(f"{folder}/{number}", os.O_CREAT | os.O_WRONLY))
    return f"{targets['inodes'] * 12} files"


def works(ways: dict[str, Callable[[], Any]]) -> str:
    """Names of the ways that the kernel does not refuse."""
    found = []
    for name, way in ways.items():
        with contextlib.suppress(OSError):
            found += [name] * (way() != -1)
    return ", ".join(found)


def stop(targets: dict[str, Any]) -> str:
    info = ctypes.create_string_buffer((19).to_bytes(8, "little") + b"\xff" * 4, 128)
    at, numbers = ctypes.addressof(info), targets["numbers"]
    with subprocess.Popen(["sleep", "60"]) as child:
        pid = child.pid
        ways = {"kill": (pid, 19), "tkill": (pid, 19), "tgkill": (pid, pid, 19)}
        ways |= {"rt_sigqueueinfo": (pid, 19, at), "rt_tgsigqueueinfo": (pid, pid, 19, at)}
        ways["pidfd_send_signal"] = (os.pidfd_open(pid), 19, 0, 0)
        found = works({name: partial(called, numbers[name], *words) for name, words in ways.items()})
        child.kill()
    return found


def disturb_agent(targets: dict[str, Any]) -> str:
    """Changes the limits, the priority and the processors of the process that started this one."""
    agent = os.getppid()
    same = os.getpriority(os.PRIO_PROCESS, agent)
    return works(
        {
            "limits": lambda: resource.prlimit(agent, resource.RLIMIT_CORE, (0, 0)),
            "priority": lambda: os.setpriority(os.PRIO_PROCESS, agent, same),
            "processors": lambda: os.sched_setaffinity(agent, os.sched_getaffinity(agent)),
        }
    )


def lease(targets: dict[str, Any]) -> str:
    with open(f"{targets['work']}/lease", "w") as file:
        ways = {"lease": (1024, 1), "signal": (10, 19)}
        return works({name: partial(fcntl.fcntl, file, *words) for name, words in ways.items()})


def held(targets: dict[str, Any], take: Callable[[], int]) -> str:
    """Takes memory until it is twice what is allowed, then waits for whoever looks at it now and then."""
    size, more = 0, 1
    while more and size < 2 * targets["memory"]:
        more = take()
        size += more
    time.sleep(1)
    return f"{size >> 20} MB" if more else ""


def in_shared_mapping(targets: dict[str, Any]) -> str:
    memory = mmap.mmap(-1, 3 * targets["memory"])

    def take() -> int:
        memory.madvise(mmap.MADV_DONTNEED)
        return memory.write(bytes(2**20))

    return held(targets, take)


def in_messages(targets: dict[str, Any]) -> str:
    queues, message = list[int](), ctypes.create_string_buffer(b"\1", 8200)

    def take() -> int:
        queues.append(LIBC.msgget(0, 0o600))
        return sum(8000 for _ in range(2) if LIBC.msgsnd(queues[-1], message, 8000, 0o4000) == 0)

    found = held(targets, take)
    for queue in queues:
        LIBC.msgctl(queue, 0, None)
    return found


def in_sockets(targets: dict[str, Any], *, unix: bool) -> str:
    server, kept = socket.create_server(("127.0.0.1", 0)), list[socket.socket]()

    def take() -> int:
        connected = () if unix else (socket.create_connection(server.getsockname()), server.accept()[0])
        size = 0
        for end in connected or socket.socketpair():
            kept.append(end)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**22)
            end.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    size += end.send(bytes(2**16))
        return size

    return held(targets, take)


INET, UNIX = socket.AF_INET, socket.AF_UNIX
Attack = Callable[[dict[str, Any]], str]
ATTACKS: dict[str, Attack] = {
    "read a key of the host": lambda t: read(t["key"]),
    "read /etc/shadow": lambda t: read("/etc/shadow") * (os.stat("/etc/shadow").st_ino == t["shadow"]),
    "list /root": lambda t: read("/root"),
    "read a disk": block_device,
    "read the kernel log": lambda t: read("/dev/kmsg"),
    "read kernel memory": lambda t: read("/proc/kcore"),
    "read the server's environment": lambda t: seen("environ", t["secret"]),
    "find descriptors of the server": host_descriptor,
    "open the agent's memory": lambda t: f"opened {os.open(f'/proc/{os.getppid()}/mem', os.O_RDONLY)}",
    "write outside": write_outside,
    "connect to the host's loopback": lambda t: connect(INET, ("127.0.0.1", t["port"])),
    "reach the internet": lambda t: connect(INET, ("192.0.2.1", 443), socket.SOCK_DGRAM),
    "reach the metadata address": lambda t: connect(INET, ("169.254.169.254", 80), socket.SOCK_DGRAM),
    "connect to a unix socket": lambda t: connect(UNIX, t["unix"]),
    "connect to an abstract socket": lambda t: connect(UNIX, "\0" + t["mark"]),
    "open a vsock": lambda t: socket.socket(40, socket.SOCK_STREAM).__class__.__name__,
    "open a packet socket": lambda t: socket.socket(17, socket.SOCK_RAW).__class__.__name__,
    "make a namespace by clone": lambda t: reaches(t, "clone", 0x10000000 | 17, 0, 0, 0, 0),
    "make a namespace by unshare": lambda t: reaches(t, "unshare", 0x10000000),
    "clone3": lambda t: reaches(t, "clone3", 0, 0),
    "change the personality": lambda t: reaches(t, "personality", 0x40000),
    "type into the terminal": lambda t: reaches(t, "ioctl", 0, 0x5412, 0),
    "kill a process of the host": kill_process,
    "see a process of another sandbox": lambda t: seen("cmdline", f"{t['mark']}-neighbour"),
    "read a file of another sandbox": lambda t: read(t["neighbour_file"]),
    "stop a process": stop,
    "disturb the agent": disturb_agent,
    "take a lease on a file": lease,
    "change the kernel's settings": lambda t: f"opened {os.open('/proc/sys/kernel/msgmax', os.O_RDWR)}",
    "use the own loopback": own_loopback,
}

HEAVY: dict[str, Attack] = {
    "fork bomb": fork_bomb,
    "much memory in one process": lambda t: f"{len(b'x' * 3 * t['memory']) >> 20} MB",
    "much memory in many processes": much_together,
    "fill the disks": fill,
    "make very many files": many_files,
    "much memory in a memfd": lambda t: held(t, partial(os.write, os.memfd_create("held"), bytes(2**20))),
    "much memory in a shared mapping": in_shared_mapping,
    "much memory in messages": in_messages,
    "much memory in unix sockets": lambda t: in_sockets(t, unix=True),
    "much memory in TCP sockets": lambda t: in_sockets(t, unix=False),
}
"""Attacks on limits: each needs a sandbox of its own."""


def main() -> None:
    targets = json.loads(sys.argv[1])
    known = {**ATTACKS, **HEAVY}
    for name in sys.argv[2:]:
        try:
            achieved = known[name](targets) if name in known else with_arguments(targets, name)
        except (OSError, MemoryError):
            achieved = ""
        os.write(1, json.dumps([name, achieved]).encode() + b"\n")


if __name__ == "__main__":
    main()
