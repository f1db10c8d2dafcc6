"""Temporary folders of our own, which the next start removes if their process was killed."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a POSIX system: folders are made, and none is removed later
    fcntl = None  # type: ignore[assignment]

PREFIX = "ors-"
LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is in use for as long as some process has its lock open."""

    path: Path
    lock: int
    """The file descriptor of the lock: processes that use the folder too are given it."""


@contextmanager
def own_folder(prefix: str = PREFIX) -> Iterator[Folder]:
    """A new temporary folder, removed at the end of the block."""
    remove_dead()
    made = _made(prefix)
    try:
        yield made
    finally:
        shutil.rmtree(made.path, ignore_errors=True)
        os.close(made.lock)


def _made(prefix: str) -> Folder:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix))
        lock = os.open(path / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        if fcntl is None or (_locked(lock) and os.fstat(lock).st_nlink):
            return Folder(path, lock)
        os.close(lock)  # another start took it for dead before it was locked


def remove_dead() -> None:
    """Removes the folders of this user whose processes are all gone: nobody holds the lock any more."""
    if fcntl is None:
        return
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            about = path.lstat()
            if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid():
                _remove_if_dead(path)


def _remove_if_dead(path: Path) -> None:
    lock = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)  # whoever has none may be alive
    try:
        if _locked(lock):
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
