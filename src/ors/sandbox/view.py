"""SandboxView: what runs in a sandbox and what is stored there, for people who watch."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ors.sandbox.spec import SandboxSpec

LARGEST_ANSWER = 1 << 20
MOST_PROCESSES, MOST_FILES = 200, 1000
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
    """Reads an agent's answer: records of fields, each of which ends with a zero byte.

    Raises:
        ValueError: the answer is not well formed.
    """
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
