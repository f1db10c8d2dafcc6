"""Errors of files in a sandbox. They are the agent's doing, as every SandboxLimit is."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ors.errors import SandboxLimit
from ors.sandbox.process import Process


def failure(path: str, data: bytes) -> Exception:
    """The error that the agent tells of: its number and text."""
    number, _, text = data.decode(errors="replace").partition(" ")
    if int(number) in (errno.EFBIG, errno.ENOSPC):
        reason = "file" if int(number) == errno.EFBIG else "disk"
        return SandboxLimit(f"{path}: {text}", reason=reason)
    return inside_error(int(number), text, path)


def inside_error(number: int, text: str, path: str) -> OSError:
    """An error of the file system inside: the agent's doing, as every SandboxLimit is."""
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
