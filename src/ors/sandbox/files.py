"""Files of a sandbox: requests for them, and snapshots."""

import asyncio
import errno
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

from ors.errors import SandboxLimit
from ors.sandbox.inside.archive import reader
from ors.sandbox.process import AgentChannel, Process

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
        return reader(self._file)

    def close(self) -> None:
        """Frees the space."""
        self._file.close()


def parts(start: str | Path, path: str | Path) -> tuple[str, str]:
    folder, name = os.path.split(os.path.normpath(os.path.join(start, path)))
    if not name:
        raise ValueError(f"{path} is not a file or folder that can be copied")
    return folder, name


async def asked(
    channel: AgentChannel, seconds: float, path: str, most: int, operation: str, *arguments: object
) -> bytes | None:
    """What the agent answers, at most `most` bytes; None if it does not answer in time."""
    if "\0" in path:
        raise ValueError("a path cannot contain a zero byte")
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    content = bytearray()

    def take(kind: bytes, data: bytes) -> None:
        content.extend(data if kind == b"D" else b"")
        if len(content) > most:
            raise ValueError("more than was asked for")
        if not answer.done() and kind == b"K":
            answer.set_result(bytes(content))
        elif not answer.done() and kind != b"D":
            fate = channel.fate
            answer.set_exception(failure(path, data) if kind or fate is None else fate())

    number = channel.expect(take)
    try:
        channel.send(operation, number, *arguments)
        done, _ = await asyncio.wait([answer], timeout=seconds)
    finally:
        channel.forget(number)
    return answer.result() if done else None


def failure(path: str, data: bytes) -> Exception:
    """The error that the agent tells of. Any is the agent's doing, and so a SandboxLimit."""
    code, _, text = data.decode(errors="replace").partition(" ")
    number = int(code)
    if number in (errno.EFBIG, errno.ENOSPC):
        return SandboxLimit(f"{path}: {text}", reason="file" if number == errno.EFBIG else "disk")
    kind = type(OSError(number, text))
    made = {"reason": "file", "__reduce__": lambda error: (kind, (number, text, path))}
    error: OSError = type(kind.__name__, (kind, SandboxLimit), made)(number, text, path)
    return error


@asynccontextmanager
async def copying(path: str, seconds: float) -> AsyncIterator[None]:
    """Bounds the time of a copy, which programs can slow down."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise SandboxLimit(f"{path}: copying the files takes too long", reason="time") from None


async def copied(process: Process, path: str) -> None:
    """Waits for the end of a copy.

    Raises:
        SandboxLimit: the files do not fit, or cannot be copied.
    """
    status, limit = await asyncio.shield(process.ended)
    if status == 0:
        return
    told = await process.read_stderr()
    if told and not limit:
        raise failure(path, told)
    reason = limit if limit in ("memory", "killed") else "disk"
    raise SandboxLimit(f"{path}: the files do not fit into the sandbox", reason=reason)
