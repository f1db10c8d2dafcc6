"""Rollouts of the log that have not ended, each in a file: its events arrive at all workers of a server."""

import fcntl
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ors._json import dumps, loads
from ors.recording.rollout_log import Event, is_finished

QUIET_SECONDS = 10.0
"""A rollout that has finished is written after this time without an event: the last ones may come late."""
ABANDONED_SECONDS = 3600.0
"""A rollout that has not finished is written after this time without an event."""

WriteRollout = Callable[[str, Sequence[Event]], None]


class OpenRollouts:
    """The rollouts that have not ended. Several processes may share the folder."""

    def __init__(self, folder: Path, write: WriteRollout) -> None:
        self._folder = folder
        self._write = write
        self._unfinished: dict[str, float] = {}
        """Rollouts that were looked at, and when they had changed then."""

    def add(self, rollout: str, events: Sequence[Event]) -> None:
        """Adds events to a rollout.

        Raises:
            OSError: they cannot be written.
        """
        self._folder.mkdir(exist_ok=True)
        lines = b"".join(dumps(event) + b"\n" for event in events)
        while True:
            file = os.open(self._path(rollout), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                if os.fstat(file).st_nlink:  # otherwise another process has just ended it
                    _append(file, lines)
                    return
            finally:
                os.close(file)

    def sweep(self, *, everything: bool = False) -> int:
        """Writes the rollouts that have ended, or all of them; returns how many.

        Raises:
            OSError: one cannot be written.
        """
        if not self._folder.is_dir():
            return 0
        due = [path for path in self._folder.glob("*.jsonl") if everything or self._is_due(path)]
        return sum(self._end(path) for path in due)

    def _is_due(self, path: Path) -> bool:
        try:
            changed = path.stat().st_mtime
            quiet = time.time() - changed
            if quiet < QUIET_SECONDS or quiet >= ABANDONED_SECONDS:
                return quiet >= ABANDONED_SECONDS
            if self._unfinished.get(path.stem) == changed:
                return False
            finished = is_finished(_events(path.read_bytes()))
        except FileNotFoundError:  # another process has just ended it
            return False
        if not finished:
            self._unfinished[path.stem] = changed
        return finished

    def _end(self, path: Path) -> int:
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        with open(file, "rb") as events:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not os.fstat(file).st_nlink:
                return 0
            try:
                self._write(path.stem, _events(events.read()))
            except OSError:
                raise  # it is tried again
            except Exception:
                path.rename(path.with_suffix(".broken"))
                raise
            path.unlink()
        self._unfinished.pop(path.stem, None)
        return 1

    def _path(self, rollout: str) -> Path:
        return self._folder / f"{rollout}.jsonl"


def _append(file: int, lines: bytes) -> None:
    size = os.fstat(file).st_size
    rest = memoryview(lines)
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError:
        os.ftruncate(file, size)
        raise


def _events(content: bytes) -> list[Any]:
    """The events of a file. A last line that was not written whole is left out."""
    found = []
    for line in content.splitlines():
        try:
            found.append(loads(line))
        except ValueError:
            continue
    return found
