"""The values of a sandbox: what it is made of, how programs ended, and what watchers see."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import islice
from posixpath import normpath
from typing import Any, Literal

MB = 2**20
HOME = "/home/agent"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

Cases = Mapping[str, str] | Sequence[tuple[str | bytes, str | bytes]]
"""Inputs, each with the output that is expected."""


PLACE = re.compile(r"([a-z0-9_.-]+|\[[0-9a-f:.]+\]):(\d{1,5})")
PROXY_PORT = 3128


def place(text: str) -> str:
    """A host and its port, as they are compared. Raises ValueError: it is not "host:port"."""
    found = PLACE.fullmatch(text.lower())
    if found is None or not 0 < int(found[2]) < 2**16:
        raise ValueError(f"{text!r} must be host:port")
    try:
        address = ip_address(found[1].strip("[]"))
    except ValueError:
        return f"{found[1]}:{int(found[2])}"
    return f"{address}:{int(found[2])}" if address.version == 4 else f"[{address}]:{int(found[2])}"


@dataclass(frozen=True, slots=True, init=False)
class Allow:
    """The places that programs can reach, and no others: `Allow("api.example.com:443", "10.0.0.5:8080")`."""

    places: frozenset[str]

    def __init__(self, *places: str) -> None:
        object.__setattr__(self, "places", frozenset(map(place, places)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """Contents and limits of a sandbox. Sizes are in bytes."""

    backend: Literal["auto", "bwrap", "podman", "docker", "none"] = "auto"
    """`auto` takes the first one that isolates. `none` isolates nothing: only for code that you trust."""
    image: str | None = None
    """Image: its name, or the path of a folder or archive that has it. It needs Python 3.8 or newer."""
    rootfs: str | None = None
    """Folder that becomes the root. It needs Python 3.8 or newer. By default: the host's /usr."""
    writable: bool = False
    """Whether programs can change the whole root, as root. The changes stay in memory, and end with it."""
    read_only: tuple[str, ...] = ()
    """More folders or files of the host that can be read, under their own paths."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Folders or files of the host under other paths, `{inside: host}`; read-only, unless it is "host:rw"."""
    workdir: str = "/work"
    """The folder that programs start in, that relative paths start at, and that is graded."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of all programs in the sandbox. Nothing comes from the server's environment."""
    network: Literal["none", "host"] | Allow = "none"
    """`none`: a loopback of its own. `host`: the host's network, with everything that listens on it.
    `Allow("host:port", ...)`: the places of a list, by a proxy on its loopback."""
    agents: bool = False
    """Whether the owner of a session may start a coding agent in it, which can read every file that is there.
    The agent reaches its model and the episode through the client, by the sandbox's loopback."""
    memory: int = 512 * MB
    """Maximum memory of all processes together, including files in the sandbox, which are in memory."""
    cpus: float | None = None
    """Maximum CPUs, where this process may create control groups. By default: all."""
    processes: int = 64
    """Maximum number of processes and threads."""
    disk: int = 0
    """Size of /work. By default half of the memory, at most 256 MB. A writable root has `disk + 2 * tmp`."""
    tmp: int = 0
    """Size of each of /tmp, /home/agent and /dev/shm. By default an eighth of the memory, at most 64 MB."""
    inodes: int = 100_000
    """Maximum number of files and folders in all writable places together."""
    open_files: int = 1024
    """Maximum open files per process."""
    cpu_seconds: int = 3600
    """Maximum CPU time of a process."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "disk", self.disk or min(256 * MB, self.memory // 2))
        object.__setattr__(self, "tmp", self.tmp or min(64 * MB, self.memory // 8))
        for name in ("memory", "processes", "disk", "tmp", "inodes", "open_files", "cpu_seconds"):
            if getattr(self, name) < 1:
                raise ValueError(f"SandboxSpec.{name} must be over 0, not {getattr(self, name)}")
        if self.backend != "none" and self.disk + 3 * self.tmp > self.memory:
            raise ValueError("SandboxSpec: disk and three times tmp must fit into memory")
        if self.agents and self.network == "host":
            raise ValueError("SandboxSpec: agents need a network of their own, not the host's")
        if self.image and self.rootfs:
            raise ValueError("SandboxSpec: give image or rootfs, not both")
        for path in (*self.read_only, *self.mounts, *self.mounts.values(), self.workdir, self.rootfs or "/"):
            if not path.startswith("/"):
                raise ValueError(f"SandboxSpec: {path!r} must be an absolute path")
        for path in (*self.mounts, self.workdir):
            if normpath(path) != path or path.split("/")[1] in ("", "proc", "dev"):
                raise ValueError(f"SandboxSpec: {path!r} cannot be a folder of a sandbox")
        for name, value in self.env.items():
            if not name or "=" in name or "\0" in name + value:
                raise ValueError(f"SandboxSpec.env: {name!r} cannot be an environment variable")

    @property
    def way_out(self) -> bool:
        """Whether the server listens on the sandbox's loopback."""
        return self.agents or isinstance(self.network, Allow)

    @property
    def sizes(self) -> dict[str, int]:
        """The writable places of a sandbox, each with its size."""
        if self.writable:
            return {"/": self.disk + 2 * self.tmp, "/dev/shm": self.tmp}
        return {"/work": self.disk, "/tmp": self.tmp, HOME: self.tmp, "/dev/shm": self.tmp}

    def variables(self, folder: str) -> dict[str, str]:
        """Environment of programs, whose places are below `folder`."""
        told = {"PATH": PATH, "LANG": "C.UTF-8", "TERM": "dumb", "USER": "root" if self.writable else "agent"}
        told |= {"HOME": "/root" if self.writable else folder + HOME}
        if isinstance(self.network, Allow):
            # What is on the list goes by the proxy, even if it is a loopback, which is then the host's.
            hosts = {each.rpartition(":")[0].strip("[]") for each in self.network.places}
            own = ",".join(each for each in ("localhost", "127.0.0.1", "::1") if each not in hosts)
            proxy = f"http://127.0.0.1:{PROXY_PORT}"
            places = {"http_proxy": proxy, "https_proxy": proxy, "all_proxy": proxy, "no_proxy": own}
            told |= places | {name.upper(): value for name, value in places.items()}
        return {**told, **self.env}


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a program in a sandbox ended, and what it printed."""

    returncode: int | None
    """Exit status; negative for a signal of its own; None when a limit or `kill` ended it."""
    stdout: bytes
    stderr: bytes
    timed_out: bool
    truncated: bool
    """Whether it was killed because it printed too much; the output up to there is kept."""
    seconds: float
    limit: str | None = None
    """The limit that was hit: "time", "output", "memory", "inodes", or "killed": it has ended its sandbox."""


@dataclass(frozen=True, slots=True)
class GradedCases:
    """Which cases a program passed, in the order of the cases. It is true if all of them passed."""

    reasons: tuple[str, ...]
    """Why each case failed: "wrong output", "exit status 1", or a limit such as "time". "" if it passed."""

    @property
    def passed(self) -> tuple[bool, ...]:
        """Whether each case passed."""
        return tuple(not reason for reason in self.reasons)

    @property
    def all(self) -> bool:
        """Whether all cases passed."""
        return all(self.passed)

    def __bool__(self) -> bool:
        return self.all

    def __iter__(self) -> Iterator[bool]:
        return iter(self.passed)

    @property
    def share(self) -> float:
        """The share of the cases that passed, from 0 to 1."""
        return sum(self.passed) / len(self.passed)


LARGEST_ANSWER = 1 << 20
TICKS = 100
"""Units of CPU time in a second, for programs."""


@dataclass(frozen=True, slots=True)
class ProcessView:
    """A process; ids are those inside the sandbox."""

    pid: int
    parent: int
    state: str
    """One letter, as in `ps`."""
    memory: int
    cpu_seconds: float
    command: str


@dataclass(frozen=True, slots=True)
class PlaceView:
    """A folder that programs can write to, with its size."""

    path: str
    used: int
    size: int
    files: int


@dataclass(frozen=True, slots=True)
class FileView:
    """A file or folder: its kind is "file", "folder", "link" or "other"."""

    kind: str
    size: int
    path: str


@dataclass(frozen=True, slots=True)
class SandboxView:
    """Processes, memory and files of a sandbox. Sizes are in bytes."""

    backend: str
    memory: int
    """Memory in use; files are in memory too, and count."""
    memory_limit: int
    processes: tuple[ProcessView, ...]
    """The programs; at most 200."""
    places: tuple[PlaceView, ...]
    files: tuple[FileView, ...]
    """Files and folders of all places, the outer ones first; at most 1,000."""


def view(answer: bytes, backend: str, spec: SandboxSpec, memory: int | None) -> SandboxView:
    """Reads an agent's answer: records of fields, each of which ends with a zero byte. Raises ValueError."""
    fields = iter(answer.decode(errors="replace").split("\0")[:-1])
    found: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
    for kind in fields:
        if kind not in _KINDS:
            raise ValueError("an answer of the sandbox is not well formed")
        made, types = _KINDS[kind]
        values = zip(types, islice(fields, len(types)), strict=True)
        found[kind].append(made(*(convert(value) for convert, value in values)))
    processes, places, files = (tuple(each) for each in found.values())
    if memory is None:
        memory = sum(each.memory for each in processes) + sum(each.used for each in places)
    return SandboxView(backend, memory, spec.memory, processes, places, files)


def _number(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**53:
        raise ValueError("a number of the sandbox is out of range")
    return value


_KINDS: dict[str, tuple[Callable[..., object], tuple[Callable[[str], object], ...]]] = {
    "process": (ProcessView, (_number, _number, str, _number, lambda text: _number(text) / TICKS, str)),
    "place": (PlaceView, (str, _number, _number, _number)),
    "entry": (FileView, (str, _number, str)),
}
