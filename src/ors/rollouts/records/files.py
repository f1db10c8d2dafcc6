"""The files of a run. A run may come from anywhere, so only regular files in its folder are read."""

import os
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO
from uuid import uuid4

from ors.rollouts.records.errors import RunError

# Opening a pipe would wait for a writer. Windows has neither flag.
_SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def open_regular(path: Path, flags: int) -> int:
    """Opens a regular file, and no link, which could lead anywhere; returns its descriptor.

    Raises:
        RunError: it is a link, a pipe, a device or a folder.
        OSError: it cannot be opened.
    """
    if path.is_symlink():
        raise RunError(f"{path} is a link, and links are not followed: put the file itself there")
    file = os.open(path, flags | _SAFELY, 0o666)
    if S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise RunError(f"{path} is not a regular file")


def open_file(path: Path, buffering: int = -1) -> BinaryIO:
    """Opens a regular file for reading.

    Raises:
        RunError: it cannot be opened.
    """
    try:
        return open(path, "rb", buffering, opener=lambda _, flags: open_regular(path, flags))
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from None


def write_whole(path: Path, content: bytes, *, new: bool = False) -> None:
    """Writes a file that others see whole or not at all.

    Raises:
        FileExistsError: there is one already, and it must be `new`.
        OSError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name[:16]}-{uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
        if new:
            _link(temporary, path)
        else:
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _link(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except OSError:
        if os.path.lexists(path):
            raise
        temporary.replace(path)  # a file system without hard links
