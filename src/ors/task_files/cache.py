"""Files in the user's cache folder, and private ones where that cannot be written."""

import hashlib
import os
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from ors._version import __version__

SEALED_BYTES = 8 * 2**20
"""Bytes at either end of a cached file that are checked when it is opened."""

Write = Callable[[IO[bytes]], None]


def folder() -> Path:
    """Folder of cached files: `$XDG_CACHE_HOME/ors/tasks`, or `~/.cache/ors/tasks`."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "ors" / "tasks"


def stamped(path: str, info: os.stat_result) -> tuple[str, str]:
    """Two beginnings of names for what is made of a file: of its path, and of its content."""
    first = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:24]
    content = f"{__version__} {info.st_dev} {info.st_ino} {info.st_size} {info.st_mtime_ns}"
    return f"{first}-", f"{first}-{hashlib.sha256(content.encode()).hexdigest()[:24]}"


def cached(path: str, info: os.stat_result, ending: str, write: Write) -> int:
    """Descriptor of the cached file made of `path`, which `write` fills if it is missing or damaged.

    Processes that do this at the same time each write a file of their own, and the last one stays. Where the
    cache folder cannot be written, or is full, the file is private.
    """
    prefix, name = stamped(path, info)
    home = folder()
    for known in home.glob(f"{name}-*{ending}"):
        with suppress(OSError):
            reading = os.open(known, os.O_RDONLY)
            if known.name == f"{name}-{_seal(reading)}{ending}":
                return reading
            os.close(reading)
    try:
        home.mkdir(parents=True, exist_ok=True)
        reading, name = _made(home, prefix, name, ending, write)
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return private(write)
    _remove_older(home, prefix, name, ending)
    return reading


def _made(home: Path, prefix: str, name: str, ending: str, write: Write) -> tuple[int, str]:
    with tempfile.NamedTemporaryFile(dir=home, prefix=prefix, delete=False) as made:
        try:
            write(made.file)
            made.flush()
            os.fsync(made.fileno())
            reading = os.open(made.name, os.O_RDONLY)
            name = f"{name}-{_seal(reading)}{ending}"
            os.replace(made.name, home / name)
        except BaseException:
            with suppress(OSError):
                os.unlink(made.name)
            raise
    return reading, name


def _seal(file: int) -> str:
    """Tells whether a file is as it was written: its size, and a checksum of its first and last bytes."""
    size = os.fstat(file).st_size
    first = os.pread(file, SEALED_BYTES, 0)
    last = os.pread(file, SEALED_BYTES, max(SEALED_BYTES, size - SEALED_BYTES))
    return f"{size:x}-{zlib.crc32(last, zlib.crc32(first)):08x}"


def _remove_older(home: Path, prefix: str, name: str, ending: str) -> None:
    # Processes that still use one of them hold it open.
    for path in home.glob(f"{prefix}*{ending}"):
        if path.name != name:
            with suppress(OSError):
                path.unlink()


def private(write: Write) -> int:
    """Descriptor of a new file without a name, filled by `write`; in memory if no disk can be written."""
    try:
        return _filled(tempfile.TemporaryFile(), write)
    except OSError:
        return _filled(os.fdopen(os.memfd_create("ors-tasks"), "w+b"), write)


def _filled(file: IO[bytes], write: Write) -> int:
    with file:
        write(file)
        file.flush()
        return os.dup(file.fileno())
