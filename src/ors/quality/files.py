"""Files that this process makes, in its temporary folder or elsewhere."""

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
    """A temporary folder that is this process's only one while the block runs."""
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
    """All that is in a folder."""
    return {str(path.relative_to(home)) for path in home.rglob("*")}


@contextmanager
def files_made() -> Iterator[set[str]]:
    """The files and folders that this process makes while the block runs, wherever they are."""
    made: set[str] = set()
    watching = True

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if watching and (path := _target(event, given)) and not os.path.lexists(path):
            made.add(path)

    sys.addaudithook(hook)  # which cannot be taken away again, so it is only told to look away
    try:
        yield made
    finally:
        watching = False


def _target(event: str, given: tuple[Any, ...]) -> str | None:
    """The path that an operation writes to, if it is one that makes files."""
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
    """Those that exist still, apart from what is below `home`."""
    return {
        path
        for path in made
        if os.path.lexists(path)
        and not path.startswith((f"{home}{os.sep}", *NOT_FILES))
        and "__pycache__" not in path
    }
