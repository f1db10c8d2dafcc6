"""The files that programs see, as arguments of bubblewrap."""

import marshal
import os
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path

from ors.sandbox import overlay
from ors.sandbox.inside.archive import CHANGES
from ors.sandbox.spec import HOME, SandboxSpec

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
