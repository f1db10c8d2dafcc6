"""Snapshot: the files of a sandbox at one moment."""

import os
import tempfile
from collections.abc import Callable, Iterator
from typing import BinaryIO

from ors.errors import SandboxLimit

PIECE = 1 << 16


class Snapshot:
    """The files of a sandbox at one moment, in a file of the host that has no name."""

    def __init__(self, most: int) -> None:
        self._file: BinaryIO = tempfile.TemporaryFile(prefix="ors-snapshot-")  # noqa: SIM115
        self._left = most
        self.size = 0
        """Bytes in the snapshot."""

    def add(self, data: bytes) -> None:
        """Takes the next bytes.

        Raises:
            SandboxLimit: there are more than expected.
        """
        self._left -= len(data)
        if self._left < 0:
            raise SandboxLimit("the files are larger than the sandbox allows", reason="disk")
        self._file.write(data)
        self.size += len(data)

    def pieces(self) -> Iterator[bytes]:
        """The bytes of the snapshot. Several readers may take them at a time."""
        self._file.flush()
        for offset in range(0, self.size, PIECE):
            yield os.pread(self._file.fileno(), PIECE, offset)

    def reader(self) -> Callable[[int], bytes]:
        """Reads the snapshot from its start, exactly so many bytes at a time."""
        self._file.seek(0)

        def read(size: int) -> bytes:
            data = self._file.read(size)
            if len(data) < size:
                raise ValueError("the snapshot ends too early")
            return data

        return read

    def close(self) -> None:
        """Frees the space."""
        self._file.close()
