"""Finds files that this process creates, in its temporary folder or elsewhere."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ors.server.process.folders import own_folder

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NOT_FILES = ("/dev/", "/proc/", "/sys/")


@contextmanager
def own_tempdir() -> Iterator[Path]:
    """Replaces the temporary folder of this process while the block runs."""
    before, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    with own_folder("ors-test-") as made:
        home = made.path / "tmp"  # without the lock
        home.mkdir()
        tempfile.tempdir, os.environ["TMPDIR"] = str(home), str(home)
        try:
            yield home
        finally:
            tempfile.tempdir = before
            if variable is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = variable


def below(home: Path) -> set[str]:
    """Paths of everything in a folder."""
    return {str(path.relative_to(home)) for path in home.rglob("*")}


@contextmanager
def files_made() -> Iterator[set[str]]:
    """Records the files and folders that this process creates anywhere while the block runs."""
    made: set[str] = set()
    watching = True

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if watching and (path := _target(event, given)) and not os.path.lexists(path):
            made.add(path)

    sys.addaudithook(hook)  # hooks cannot be removed, only switched off
    try:
        yield made
    finally:
        watching = False


def _target(event: str, given: tuple[Any, ...]) -> str | None:
    """Path that an operation creates; None for other operations."""
    if event == "open" and not (isinstance(given[2], int) and given[2] & WRITING):
        return None
    if event in ("open", "os.mkdir", "sqlite3.connect"):
        path = given[0]
    elif event in ("os.rename", "os.link", "os.symlink"):
        path = given[1]
    else:
        return None
    return os.path.abspath(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else None


def still_there(made: set[str], home: Path) -> set[str]:
    """Paths that still exist, except those below `home`."""
    return {
        path
        for path in made
        if os.path.lexists(path)
        and not path.startswith((f"{home}{os.sep}", *NOT_FILES))
        and "__pycache__" not in path
    }
