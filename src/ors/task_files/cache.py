"""Files in the user's cache folder, and private ones where that cannot be written."""

import hashlib
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from ors._version import __version__

Write = Callable[[IO[bytes]], None]


def folder() -> Path:
    """Folder of cached files: `$XDG_CACHE_HOME/ors/tasks`, or `~/.cache/ors/tasks`."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "ors" / "tasks"


def stamped(path: str, info: os.stat_result, ending: str) -> tuple[str, str]:
    """Two names for what is made of a file: the first part belongs to its path, the whole to its content."""
    first = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:24]
    content = f"{__version__} {info.st_dev} {info.st_ino} {info.st_size} {info.st_mtime_ns}"
    return f"{first}-", f"{first}-{hashlib.sha256(content.encode()).hexdigest()[:24]}{ending}"


def cached(path: str, info: os.stat_result, ending: str, write: Write) -> int:
    """Descriptor of the cached file made of `path`, which `write` fills if it is missing.

    Processes that do this at the same time each write a file of their own, and the last one stays.
    """
    prefix, name = stamped(path, info, ending)
    home = folder()
    with suppress(OSError):
        return os.open(home / name, os.O_RDONLY)
    try:
        home.mkdir(parents=True, exist_ok=True)
        made = tempfile.NamedTemporaryFile(dir=home, prefix=prefix, delete=False)  # noqa: SIM115
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return private(write)
    try:
        with made:
            write(made.file)
        reading = os.open(made.name, os.O_RDONLY)
        os.replace(made.name, home / name)
    except BaseException:
        with suppress(OSError):
            os.unlink(made.name)
        raise
    _remove_older(home, prefix, name, ending)
    return reading


def _remove_older(home: Path, prefix: str, name: str, ending: str) -> None:
    # Processes that still use one of them hold it open.
    for path in home.glob(f"{prefix}*{ending}"):
        if path.name != name:
            with suppress(OSError):
                path.unlink()


def private(write: Write) -> int:
    """Descriptor of a new file without a name, filled by `write`; in memory if no disk can be written."""
    try:
        file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
    except OSError:
        file = os.fdopen(os.memfd_create("ors-tasks"), "w+b")
    with file:
        write(file)
        file.flush()
        return os.dup(file.fileno())
