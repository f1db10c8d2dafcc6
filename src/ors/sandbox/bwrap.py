"""Sandboxes by bubblewrap: name spaces of the kernel, without a container engine and without root."""

import json
import marshal
import os
import platform
import secrets
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from ors.sandbox import cgroups, overlay, seccomp
from ors.sandbox.backends import Launched, Trouble, begun
from ors.sandbox.inside import BOOT
from ors.sandbox.inside.archive import CHANGES
from ors.sandbox.spec import HOME, PROXY_PORT, SandboxSpec

FIRST_UID, UIDS = 0x70000000, 0x0FFFFFF0
"""User ids that no system gives to anybody."""
FEWEST_UIDS = 1000
"""A container with fewer has none to spare."""
KEEPER = """\
remove() { n=0; for group; do
while [ $n -lt 500 ] && [ -d "$group" ] && ! rmdir "$group"; do n=$((n+1)); sleep 0.02; done
done; exit; }
trap 'remove "$@"' TERM
read -r line; remove "$@\""""
"""Removes the groups of a sandbox when the server has died, which the kernel tells it by SIGTERM. It holds
both ends of the pipe that it reads from, so nothing else ends it."""
REMOVE_SECONDS = 5.0


class Bwrap:
    name = "bwrap"
    isolates = True

    def missing(self, spec: SandboxSpec) -> Trouble | None:
        if sys.platform != "linux" or platform.machine() not in seccomp.ARCHITECTURES:
            return Trouble(f"it does not run on {sys.platform} {platform.machine()}", "install podman")
        if shutil.which("bwrap") is None:
            return Trouble("bubblewrap is not installed", "sudo apt-get install bubblewrap")
        if os.getuid() == 0 and shutil.which("setpriv") is None:
            return Trouble("setpriv is not installed", "apt-get install util-linux")
        if spec.image is None and _python(spec) is None:
            where = f" in {spec.rootfs}" if spec.rootfs else ""
            return Trouble(f"there is no Python for the agent{where}", "install Python 3.8 or newer there")
        return None

    def launch(self, spec: SandboxSpec, connection: int, errors: int) -> Launched:
        """Starts bubblewrap: in control groups if possible, and never as root."""
        group = cgroups.create(spec) if shutil.which("setpriv") else None
        data, started = _Data(spec.way_out), list[subprocess.Popen[bytes]]()
        user = self.user()
        apart = user if user is not None and _may_map() else None
        try:
            if group is not None or apart is not None:
                data.open_answers(gate=apart is not None)
            command = self.command(spec, data, user, counted=group is not None)
            # Programs inside can read its environment.
            started.append(begun(command, connection, errors, env={}, cwd="/", pass_fds=data.fds))
            started += [] if group is None else [_keeper(group)]
        except BaseException:
            data.close_answers()
            if data.way_out is not None:
                data.way_out.close()
            _undo(group, started)
            raise
        finally:
            data.close()
        told = settings(spec, group, counted=group is not None, agent=0 if apart is None else AGENT)
        told |= {"way_out": data.fds[0] if data.way_out else -1, "port": PROXY_PORT}
        join = partial(_join, group, started[0].pid, data, apart, 0 if spec.writable else INSIDE)
        undo = partial(_undo, group, started[1:])
        return Launched(started[0], told, group, data.way_out, join, ended=undo)

    def command(self, spec: SandboxSpec, data: "_Data", user: int | None, *, counted: bool) -> list[str]:
        """The command line. Root becomes `user`, which owns nothing, another one for each sandbox."""
        python, inside = str(_python(spec)), str(0 if spec.writable else INSIDE)
        mapping = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        arguments = [
            *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
            *("--die-with-parent", "--as-pid-1", "--clearenv"),
            # With a map of the server's, only the filter refuses further user namespaces.
            *(mapping if data.gate >= 0 else ["--disable-userns"]),
            *("--uid", inside, "--gid", inside, "--hostname", "sandbox"),
            *([] if spec.network == "host" else ["--unshare-net"]),
            *root_arguments(spec, data.add),
            *place_arguments(spec),
            *("--seccomp", str(data.add(seccomp.program(counted=counted)))),
            *data.arguments,
            *("--chdir", "/", "--", python, "-I", "-S", "-c", BOOT),
        ]
        return [*overlaid(spec, user), *_drop(user), str(shutil.which("bwrap")), *arguments]

    def user(self) -> int | None:
        return _unused_user() if os.getuid() == 0 else None

    def explain(self, spec: SandboxSpec, text: str) -> Trouble:
        for part, trouble in _KNOWN.items():
            if part in text:
                return Trouble(*trouble)
        if "source path" in text or "Permission denied" in text:
            return Trouble(text, "make the paths of the SandboxSpec readable for all users")
        return Trouble(text or "bubblewrap exited immediately", "bwrap --ro-bind / / --unshare-all true")


_FORBIDDEN = (
    "the kernel, or the container around this process, forbids user namespaces",
    "sudo sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000; "
    "start a container with --security-opt seccomp=unconfined --security-opt systempaths=unconfined",
)
_KNOWN = {
    "overlay: ": (
        "the kernel, or the container around this process, refuses the overlay of a writable root",
        "Linux 5.11 or newer; in a container --privileged; or leave out writable",
    ),
    "Unknown option": ("bubblewrap is older than 0.8", "install bubblewrap 0.8 or newer"),
    "setting up uid map: Permission denied": (
        "AppArmor forbids user namespaces for plain users",
        "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    "No permissions to create new namespace": _FORBIDDEN,
    "reating new namespace failed": _FORBIDDEN,
    "Can't mount proc": (
        "the container around this process hides parts of /proc",
        "start the container with --security-opt systempaths=unconfined",
    ),
}


def settings(
    spec: SandboxSpec, group: cgroups.Cgroup | None, *, counted: bool, agent: int = 0
) -> dict[str, object]:
    """Settings of the agent, which counts memory and sockets where the kernel does not, and needs a bound.

    `agent` is the user id that it takes, if it can have another one than the programs.
    """
    limits = {"NPROC": spec.processes + 1, "NOFILE": spec.open_files, "CPU": spec.cpu_seconds, "CORE": 0}
    limits |= {} if counted else {"DATA": 2 * spec.memory}
    by_kernel = spec.network == "host" or (counted and cgroups.counts_sockets(group))
    told = {"limits": limits, "places": list(spec.sizes), "inodes": spec.inodes, "agent": agent}
    told |= {"folder": "", "workdir": spec.workdir, "way_out": -1}
    told |= {"changes": {f"{number}": name for number, name in enumerate(layers(spec))}}
    return told | {"memory": 0 if counted else spec.memory, "sockets": 0 if by_kernel else spec.memory // 4}


class _Data:
    def __init__(self, way_out: bool) -> None:
        self.fds: list[int] = []
        self.way_out: socket.socket | None = None
        if way_out:
            self.way_out, theirs = socket.socketpair()
            self.fds.append(theirs.detach())
        self.answers, self.gate = -1, -1
        """Ends of this process: what bubblewrap says, and whether it may go on."""
        self.arguments: list[str] = []

    def add(self, content: bytes) -> int:
        """A descriptor to read the content from; it must fit into a pipe."""
        reader, writer = os.pipe()
        self.fds.append(reader)
        with open(writer, "wb") as file:
            file.write(content)
        return reader

    def open_answers(self, *, gate: bool) -> None:
        """Lets bubblewrap tell the agent's process id, and with `gate` wait until users are mapped."""
        self.answers, writer = os.pipe()
        self.fds.append(writer)
        self.arguments += ["--info-fd", str(writer)]
        if gate:
            reader, self.gate = os.pipe()
            self.fds.append(reader)
            self.arguments += ["--userns-block-fd", str(reader)]

    def close_answers(self) -> None:
        for fd in {self.answers, self.gate} - {-1}:
            os.close(fd)

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


def _join(group: cgroups.Cgroup | None, bwrap: int, data: _Data, user: int | None, inside: int) -> None:
    """Maps the users of the agent, as soon as its id is known, and puts it and bubblewrap into their groups.

    The kernel takes 5 to 15 ms for the first move, and little for one right after it. The start goes on
    meanwhile: no request is sent, and so the agent has no children, before both are in their groups.

    Raises:
        OSError: that is not possible.
    """
    text = b""
    try:
        while data.answers >= 0 and b"}" not in text and (more := os.read(data.answers, 4096)):
            text += more
        if b"}" not in text:
            return  # the start has failed, or nothing is to be done
        agent = int(json.loads(text)["child-pid"])
        if user is not None:
            # The root of the namespace owns its terminals. Nobody becomes it, if programs are not root.
            users = f"{inside} {user} 1\n{AGENT} {user + 1} 1\n{INSIDE - inside} {user + 2} 1\n"
            for kind in ("uid", "gid"):
                Path(f"/proc/{agent}/{kind}_map").write_text(users)
    finally:
        data.close_answers()
    if group is not None:
        group.add(bwrap)
        group.add(agent)


def _keeper(group: cgroups.Cgroup) -> subprocess.Popen[bytes]:
    """Starts the process that removes the groups if this one cannot."""
    reader, writer = os.pipe()
    command = [str(shutil.which("setpriv")), "--pdeathsig=TERM", "/bin/sh", "-c", KEEPER, "sh"]
    command += map(str, group.folders)
    try:
        return begun(command, reader, subprocess.DEVNULL, env={}, cwd="/", pass_fds=[writer])
    finally:
        os.close(reader)
        os.close(writer)


def _undo(group: cgroups.Cgroup | None, started: list[subprocess.Popen[bytes]]) -> None:
    """Ends processes that were started for a sandbox, and removes its groups."""
    for process in started:
        process.kill()
        process.wait()
    deadline = time.monotonic() + REMOVE_SECONDS
    while group is not None and not group.remove():  # processes of the sandbox may still be ending
        if time.monotonic() > deadline:
            raise TimeoutError("processes of a sandbox do not end")
        time.sleep(0.005)


@cache
def _may_map() -> bool:
    """Whether this process may map users of another namespace, and bubblewrap may have capabilities there."""
    words = Path("/proc/self/status").read_text().partition("CapEff:")[2].split()
    needed = 1 << 6 | 1 << 7 | 1 << 21  # CAP_SETGID, CAP_SETUID, CAP_SYS_ADMIN
    return int(words[0], 16) & needed == needed and not os.stat(str(shutil.which("bwrap"))).st_mode & 0o4000


def _drop(user: int | None) -> list[str]:
    if user is None:
        return []
    # setpriv would look the user up, by 80 system calls. The plus says that it is a number.
    chroot = shutil.which("chroot") or "/usr/sbin/chroot"  # here it changes no root
    return [chroot, f"--userspec=+{user}:+{user}", "--groups=", "/"]


def _unused_user() -> int | None:
    """The first of a sandbox's three users; None for the root of a container that has none to spare."""
    with open("/proc/self/uid_map") as file:
        ranges = [(int(words[2]), int(words[0])) for words in map(str.split, file)]
    count, first = max(ranges)
    if first + count > FIRST_UID + UIDS:
        return FIRST_UID + 4 * secrets.randbelow(UIDS // 4)
    return None if count < FEWEST_UIDS else first + count // 2 + 4 * secrets.randbelow(count // 8)


def _python(spec: SandboxSpec) -> str | None:
    """The Python for the agent; first one of the server's version, which need not compile the agent."""
    root = Path(spec.rootfs or "/")
    own = [path.strip("/") for path in spec.env.get("PATH", "").split(":")] if spec.rootfs else []
    for name in (f"python{sys.version_info[0]}.{sys.version_info[1]}", "python3"):
        for folder in ("usr/bin", "usr/local/bin", "bin", *own):
            if os.path.lexists(root / folder / name):
                return f"/{folder}/{name}"
    return None


# ── The files that programs see ──────────────────────────────────────────────────────────────────

SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
ETC = (
    *("alternatives", "ld.so.cache", "localtime", "nsswitch.conf"),
    *("ssl/certs", "ssl/openssl.cnf", "pki/tls", "pki/ca-trust"),
)
"""Files of /etc that programs need, and that tell nothing of the host. Each costs 0.2 ms."""
FOLDERS = (
    *(("0755", f"/{name}") for name in ("home", "opt", "srv", "mnt", "var", "run")),
    *(("1777", "/tmp"), ("1777", "/var/tmp"), ("0700", "/root")),
)
"""Folders that every writable root has."""
RESERVED = {"proc", "sys", "dev", "run", "work", "tmp", "home", "root"}
SHARED = {f"/usr{each}{name}" for each in ("", "/local") for name in ("", "/bin", "/sbin", "/lib", "/share")}
"""Folders that programs need, whatever else is in them."""
INSIDE, AGENT = 1000, 1001
"""User and group ids inside: of programs, and of the agent where it has its own."""
ACCOUNTS = {
    "/etc/passwd": f"agent:x:{INSIDE}:{INSIDE}::{HOME}:/bin/sh\n",
    "/etc/group": f"agent:x:{INSIDE}:\n",
}
ROOT_ACCOUNTS = {"/etc/passwd": "root:x:0:0::/root:/bin/sh\n", "/etc/group": "root:x:0:\n"}
HOSTS = "127.0.0.1 localhost\n::1 localhost\n"


def layers(spec: SandboxSpec) -> dict[str, str]:
    """The folders of a writable root, each with the one of the host that is below it."""
    if not spec.writable or spec.rootfs:
        return {"": os.path.realpath(spec.rootfs)} if spec.writable and spec.rootfs else {}
    real = [f"/{name}" for name in SYSTEM if os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}")]
    return {"": "", **{path: path for path in real}}


def overlaid(spec: SandboxSpec, user: int | None) -> list[str]:
    """The start of a command that makes a writable root first."""
    if not spec.writable:
        return []
    size = f"size={spec.sizes['/']},nr_inodes={spec.inodes},mode=0755"
    hidden = [] if spec.rootfs else _hidden()
    what = marshal.dumps([layers(spec), size, os.getuid() if user is None else user, hidden])
    return [sys.executable, "-I", "-S", overlay.__file__, what.hex()]


def root_arguments(spec: SandboxSpec, put: Callable[[bytes], int]) -> list[str]:
    root = Path(spec.rootfs or "/")
    found = sorted({each.name for each in root.iterdir()} - RESERVED) if spec.rootfs else SYSTEM
    names = () if spec.writable and spec.rootfs else found
    arguments = ["--bind", overlay.ROOT, "/", "--perms", "0755", "--dir", "/etc"] if spec.writable else []
    arguments += [word for name in names for word in _entry(root / name, spec.writable)]
    if spec.rootfs is None:
        arguments += [word for name in ETC for word in ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")]
        hidden = [] if spec.writable else _hidden()
        arguments += [word for path in hidden for word in ("--size", "4096", "--tmpfs", path)]
        accounts = ROOT_ACCOUNTS if spec.writable else ACCOUNTS
        for path, text in {**accounts, **({"/etc/hosts": HOSTS} if spec.network != "host" else {})}.items():
            arguments += ["--perms", "0644", "--file", str(put(text.encode())), path]
    if spec.network == "host":
        for path in ("/etc/resolv.conf", "/etc/hosts"):
            if spec.rootfs is None or (root / path[1:]).is_file():  # a read-only folder takes no new file
                arguments += ["--ro-bind-try", path, path]
    return arguments


def _entry(path: Path, covered: bool) -> list[str]:
    if path.is_symlink():
        return ["--symlink", os.readlink(path), f"/{path.name}"]
    return ["--ro-bind", str(path), f"/{path.name}"] if path.exists() and not covered else []


def _hidden() -> list[str]:
    """Folders that may have answers: packages of the server's Python, and where its modules come from."""
    folders = _module_folders(len(sys.modules), next(reversed(sys.modules)))
    outer = [path for path in folders if not any(path.startswith(f"{other}/") for other in folders)]
    return [path for path in outer if os.path.isdir(path)]


@cache
def _module_folders(loaded: int, last: str) -> list[str]:
    """Folders below /usr, of the modules that are loaded, that are not Python's own."""
    modules = list(sys.modules.values())
    files = {os.path.dirname(getattr(each, "__file__", None) or "/") for each in modules}
    own = {name: os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib")}
    python = own.pop("stdlib") + "/"
    found = {path for path in map(os.path.realpath, files) if not f"{path}/".startswith(python)}
    found = {path for path in found if "-packages" not in path} | {"/usr/src", *own.values()}
    return sorted(path for path in found - SHARED if path.startswith("/usr/"))


def place_arguments(spec: SandboxSpec) -> list[str]:
    """The devices and the writable places, each with its size. Everything else becomes read-only."""
    hidden = [] if spec.rootfs or spec.writable else _hidden()
    arguments = ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]
    for path, size in spec.sizes.items():
        arguments += [] if path == "/" else ["--size", str(size), "--tmpfs", path]
    if spec.writable:
        folders = [*FOLDERS, ("0755", "/work"), ("0755", spec.workdir)]
        arguments += [word for mode, path in folders for word in ("--perms", mode, "--dir", path)]
        arguments += ["--ro-bind", overlay.CHANGES, CHANGES]
    arguments += [word for path in spec.read_only for word in ("--ro-bind", path, path)]
    for path, source in spec.mounts.items():
        kind = "--bind" if source.endswith(":rw") else "--ro-bind"
        arguments += [kind, source.removesuffix(":rw"), path]
    closed = [*hidden, "/dev", *([] if spec.writable else ["/"])]
    return arguments + [word for path in closed for word in ("--remount-ro", path)]
