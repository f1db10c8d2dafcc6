"""Large values of a run, each in a file that is named by the SHA-256 of its content."""

import hashlib
import re
from pathlib import Path
from uuid import uuid4

from ors.rollouts.records.errors import RunError

FOLDER = "blobs"
NAME = "^[0-9a-f]{64}$"


class Blobs:
    """The blobs of one run."""

    def __init__(self, run: Path) -> None:
        self._folder = run / FOLDER

    def put(self, content: bytes) -> str:
        """Writes a blob if it is not there yet; returns its name."""
        name = hashlib.sha256(content).hexdigest()
        path = self._folder / name
        if not path.exists():
            self._folder.mkdir(exist_ok=True)
            write_whole(path, content)
        return name

    def get(self, name: str) -> bytes:
        """Reads a blob.

        Raises:
            RunError: there is no such blob, or it was changed.
        """
        if not re.fullmatch(NAME, name):
            raise RunError(f"{name[:80]!r} is not the name of a blob")
        try:
            content = (self._folder / name).read_bytes()
        except OSError as error:
            raise RunError(f"The blob {name} cannot be read: {error.strerror}") from None
        if hashlib.sha256(content).hexdigest() != name:
            raise RunError(f"The blob {name} was changed or damaged")
        return content


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file that others see whole or not at all."""
    temporary = path.with_name(f".{path.name[:16]}-{uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
