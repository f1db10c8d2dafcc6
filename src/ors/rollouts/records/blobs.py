"""Large values of a run, each in a file that is named by the SHA-256 of its content."""

import hashlib
import re
from pathlib import Path
from typing import Any, BinaryIO

from ors._json import loads
from ors.rollouts.records.errors import RunError
from ors.rollouts.records.files import open_file, write_whole

FOLDER = "blobs"
NAME = "^[0-9a-f]{64}$"
MOST_KNOWN = 10_000


class Blobs:
    """The blobs of one run."""

    def __init__(self, run: Path) -> None:
        self._folder = run / FOLDER
        self._known: set[str] = set()
        """Blobs that are certain to be whole; not all of them, since there may be millions."""

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
        """Reads a blob.

        Raises:
            RunError: there is no such blob, or it was changed.
        """
        with self.open(name) as file:
            content = file.read()
        if hashlib.sha256(content).hexdigest() != name:
            raise RunError(f"The blob {name} was changed or damaged")
        return content

    def json(self, name: str) -> Any:
        """Reads a blob of JSON. Raises ValueError if it is none, besides what `get` raises."""
        return loads(self.get(name))

    def open(self, name: str) -> BinaryIO:
        """Opens a blob, whose content nobody has checked.

        Raises:
            RunError: there is no such blob.
        """
        if not re.fullmatch(NAME, name):
            raise RunError(f"{name[:80]!r} is not the name of a blob")
        self._check_folder()
        return open_file(self._folder / name)

    def _check_folder(self) -> None:
        if self._folder.is_symlink():
            raise RunError(f"{self._folder} is a link, and links are not followed")
