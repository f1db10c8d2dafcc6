"""Writes the episodes of a run, one line each."""

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import replace
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Self

from ors._identity import Identity
from ors.rollouts.episodes.episode import EpisodeRecord
from ors.rollouts.records.files import Blobs, RunError, open_regular, write_whole
from ors.rollouts.records.info import FILE, RunInfo, info_bytes, read_info
from ors.rollouts.records.line import encode
from ors.types import RewardSpec

try:
    import fcntl
except ImportError:  # Windows: a second writer is not noticed
    fcntl = None  # type: ignore[assignment]


def declare(folder: Path, rewards: Mapping[str, RewardSpec]) -> None:
    """Adds what environments declare of their rewards, by name, to the description of a run."""
    info = read_info(folder)
    told = {**info.rewards, **{name: spec for name, spec in rewards.items() if spec != RewardSpec()}}
    if told != info.rewards:
        write_whole(folder / FILE, info_bytes(replace(info, rewards=told)))


class RunWriter:
    """Appends episodes to a run. Threads and tasks of one process share one writer.

    Several processes can write one run if each has its own `part`, which names its file.
    """

    def __init__(self, folder: Path, part: str = "", info: RunInfo | None = None) -> None:
        """Opens the file of a part, and describes the run by `info` if nobody has done so yet.

        The lock comes first: who has it has written `run.json`, or has found it.
        """
        if part and not re.fullmatch(r"[\w.-]+", part):
            raise RunError(f"{part!r} cannot be part of a file name")
        self.folder = folder
        self._blobs = Blobs(folder)
        self._environments: Mapping[str, Identity] = {} if info is None else info.environments
        self._lock = threading.Lock()
        path = folder / (f"episodes-{part}.jsonl" if part else "episodes.jsonl")
        self._file: int | None = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            _lock(self._file, folder)
            if info is not None:
                write_whole(folder / FILE, info_bytes(info), new=True)
            self._size = _mend(self._file)
        except BaseException:
            os.close(self._file)
            raise

    @classmethod
    def create(cls, folder: str | Path, info: RunInfo, *, part: str = "", append: bool = False) -> Self:
        """Creates a run and opens it. With `append`, an existing run is continued.

        Raises:
            RunError: there is a run already, or another process writes to it.
            OSError: the folder cannot be written.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(folder / FILE):
            try:
                return cls(folder, part, info)
            except FileExistsError:
                pass  # another process was faster
        if not append:
            raise RunError(f"{folder} already has a run: resume it, or choose another folder")
        return cls.open(folder, part=part)

    @classmethod
    def open(cls, folder: str | Path, *, part: str = "") -> Self:
        """Opens a run to continue it. A torn last line is cut off.

        Raises:
            RunError: the folder is not a run, or another process writes to it.
            OSError: the folder cannot be written.
        """
        read_info(Path(folder))
        return cls(Path(folder), part)

    def describe(self, info: RunInfo) -> None:
        """Replaces the description of the run.

        Raises:
            OSError: it cannot be written.
        """
        write_whole(self.folder / FILE, info_bytes(info))
        self._environments = info.environments

    def identify(self, environment: str, code: Identity) -> None:
        """Adds which code an environment is to the description of the run, and to the episodes that follow.

        Raises:
            OSError: it cannot be written.
        """
        info = read_info(self.folder)
        self.describe(replace(info, environments={**info.environments, environment: code}))

    def append(self, record: EpisodeRecord) -> None:
        """Writes one episode. After a kill, the file has all of it, none of it, or a torn last line.

        Raises:
            TypeError, ValueError: a value of the record cannot be written as JSON.
            OSError: the disk is full, or the file cannot be written. The file is as before.
        """
        line = encode(record, self._blobs, self._environments)
        with self._lock:
            if self._file is None:
                raise RunError(f"The run {self.folder} is closed")
            self._write(self._file, line)

    def _write(self, file: int, line: bytes) -> None:
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(file, rest) :]
        except BaseException:
            os.ftruncate(file, self._size)
            raise
        self._size += len(line)

    def close(self) -> None:
        """Closes the run. Others can open it then."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _lock(file: int, folder: Path) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RunError(f"Another process is writing to the run {folder}: stop it first") from None


def _mend(file: int) -> int:
    """Cuts off what follows the last newline; returns the size now."""
    if not os.fstat(file).st_size:
        return 0
    with mmap(file, 0, access=ACCESS_READ) as content:
        end = content.rfind(b"\n") + 1
    os.ftruncate(file, end)
    return end
