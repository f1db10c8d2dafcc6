"""The files of a run. A run may come from anywhere, so only regular files in its folder are read."""

import hashlib
import os
import re
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO
from uuid import uuid4

from ors._json import loads

# Opening a pipe would wait for a writer. Windows has neither flag.
_SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
BLOBS = "blobs"
BLOB_NAME = "^[0-9a-f]{64}$"
MOST_KNOWN = 10_000


class RunError(ValueError):
    """A run cannot be read or written; the message says why, and what to do."""


class NewerSchema(RunError):
    """A run was written by a newer version of this package."""


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


class Blobs:
    """Large values of a run, each in a file that is named by the SHA-256 of its content."""

    def __init__(self, run: Path) -> None:
        self._folder = run / BLOBS
        self._known: set[str] = set()
        """Blobs that are certain to be whole; not all of them, since there may be millions."""
        self.tools: tuple[str, tuple[Any, ...]] = ("", ())
        """The tools that were read last, and the name of their blob."""

    def put(self, content: bytes) -> str:
        """Writes a blob if it is not there yet, or is damaged; returns its name."""
        name = hashlib.sha256(content).hexdigest()
        if name in self._known:
            return name
        try:
            self.get(name)
        except RunError:
            self._check_folder()
            self._folder.mkdir(exist_ok=True)
            write_whole(self._folder / name, content)
        if len(self._known) < MOST_KNOWN:
            self._known.add(name)
        return name

    def get(self, name: str) -> bytes:
        with self.open(name) as file:
            content = file.read()
        if hashlib.sha256(content).hexdigest() != name:
            raise RunError(f"The blob {name} was changed or damaged")
        return content

    def json(self, name: str) -> Any:
        """Reads a blob of JSON. Raises ValueError if it is none, besides what `get` raises."""
        return loads(self.get(name))

    def open(self, name: str) -> BinaryIO:
        """Opens a blob, whose content nobody has checked."""
        if not re.fullmatch(BLOB_NAME, name):
            raise RunError(f"{name[:80]!r} is not the name of a blob")
        self._check_folder()
        return open_file(self._folder / name)

    def _check_folder(self) -> None:
        if self._folder.is_symlink():
            raise RunError(f"{self._folder} is a link, and links are not followed")
