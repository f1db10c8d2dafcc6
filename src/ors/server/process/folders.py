"""Temporary folders. If their process was killed, the next start removes them."""

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
except ImportError:  # not a POSIX system: folders of killed processes stay
    fcntl = None  # type: ignore[assignment]

PREFIX = "ors-"
LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is in use as long as some process holds its lock."""

    path: Path
    lock: int
    """The file descriptor of the lock, to be inherited by processes that also use the folder."""


@contextmanager
def own_folder(prefix: str = PREFIX) -> Iterator[Folder]:
    """A new temporary folder, removed at the end of the block."""
    remove_dead()
    folder = _create(prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder.path, ignore_errors=True)
        os.close(folder.lock)


def _create(prefix: str) -> Folder:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix))
        lock = os.open(path / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        if fcntl is None or (_locked(lock) and os.fstat(lock).st_nlink):
            return Folder(path, lock)
        os.close(lock)  # another process removed it before it was locked


def remove_dead() -> None:
    """Removes the folders of this user whose lock no process holds."""
    if fcntl is None:
        return
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            about = path.lstat()
            if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid():
                _remove_if_dead(path)


def _remove_if_dead(path: Path) -> None:
    lock = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)  # a folder without a lock may be in use
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
