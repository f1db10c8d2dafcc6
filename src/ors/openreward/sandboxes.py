"""openreward's client in this process: its sandboxes are ours, without a server between."""

import asyncio
import inspect
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NoReturn, Self
from uuid import uuid4

from ors.client.portal import Portal
from ors.errors import SandboxLimit
from ors.openreward import NotOffered
from ors.openreward.hosting import (
    Hosting,
    SandboxNetworkPolicy,
    SandboxSettings,
    ask_file,
    run_command,
    sizes,
)
from ors.sandbox import Sandbox

DOWNLOAD_BYTES = 256 * 2**20
_CONTROL = re.compile(r"\x1b(?:[@-Z\\-_]|\[[0-?]*[ -/]*[@-~])|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Escape sequences of terminals, and control characters but for tabs and line ends."""


@dataclass(frozen=True)
class RunResult:
    """How a command ended; unpacks as `(output, return_code)`."""

    output: str
    return_code: int
    truncated: bool = False
    timed_out: bool = False
    sanitised: bool = True

    def __iter__(self) -> Iterator[Any]:
        return iter((self.output, self.return_code))


@dataclass(frozen=True)
class FileTransferResult:
    size: int
    sha256: str


class FileTransferError(RuntimeError):
    """A file cannot be copied."""


class FileTooLargeError(FileTransferError):
    def __init__(self, path: str, size: int, limit: int) -> None:
        super().__init__(f"{path} is {size} bytes, over the {limit}-byte download limit")
        self.path, self.size, self.limit = path, size, limit


class PodTerminatedError(RuntimeError):
    """Never raised here: a sandbox that has ended raises SandboxDead or SandboxLimit."""


class AsyncSandboxesAPI:
    """One sandbox: `async with AsyncOpenReward().sandbox(settings) as box`.

    Files need no chunks here: sizes of chunks are taken as the SDK takes them, and change nothing.
    """

    sid: str | None = None
    _box: Sandbox | None = None

    def __init__(self, settings: SandboxSettings, hosting: Hosting, creation_timeout: float) -> None:
        self.settings = settings
        self._hosting = hosting
        self._seconds = creation_timeout

    async def start(self) -> None:
        async with asyncio.timeout(self._seconds):
            self._box = await self._hosting.open(self.settings)
        self.sid = str(uuid4())

    async def stop(self) -> None:
        box, self._box = self._box, None
        if box is not None:
            await box.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def _started(self) -> Sandbox:
        if self._box is None:
            raise RuntimeError("Sandbox not started. Call start() or use as context manager.")
        return self._box

    async def run(
        self, cmd: str, timeout: float | None = 300, max_bytes: int | None = 50_000, sanitise: bool = True
    ) -> RunResult:
        most = None if max_bytes is None else max_bytes + 1
        code, output, timed_out = await run_command(self._started, cmd, timeout, most)
        text = output.decode(errors="surrogateescape").rstrip()
        if sanitise:
            text = _CONTROL.sub("", text.encode(errors="backslashreplace").decode())
        truncated = max_bytes is not None and len(text) > max_bytes
        return RunResult(text[:max_bytes], code, truncated, timed_out, sanitise)

    async def check_run(self, cmd: str, *args: Any, **named: Any) -> str:
        """Runs a command as `run` does, and returns its output. Raises RuntimeError if it fails."""
        result = await self.run(cmd, *args, **named)
        if result.return_code != 0:
            raise RuntimeError(f"Command failed: {cmd}\n{result.output}")
        return result.output

    async def upload(self, local_path: str | os.PathLike[str], container_path: str) -> None:
        await self.upload_from(local_path, container_path)

    async def download(self, container_path: str, max_size: int | None = DOWNLOAD_BYTES) -> bytes:
        box, most = self._started, max_size or self._started.spec.memory
        try:
            return await box.read_file(container_path, most)
        except OSError as error:
            raise FileTransferError(f"Cannot download {container_path}: {error.strerror}") from None
        except SandboxLimit as error:
            if error.reason != "file":
                raise
            told = await box.exec(["stat", "-Lc", "%s", "--", container_path])
            raise FileTooLargeError(container_path, int(told.stdout), most) from None

    async def stat_file(self, container_path: str, sha256: bool = False) -> dict[str, Any]:
        digest = "1" if sha256 else ""
        return sizes(await ask_file(self._started, "stat", container_path, digest))

    async def upload_from(
        self, local_path: str | os.PathLike[str], container_path: str, *, chunk_size: int = 0
    ) -> FileTransferResult:
        local = await asyncio.to_thread(os.path.realpath, local_path)
        await self._started.upload(local, container_path)
        return FileTransferResult(**await self.stat_file(container_path, sha256=True))

    async def download_to(
        self, container_path: str, local_path: str | os.PathLike[str], *, chunk_size: int = 0
    ) -> FileTransferResult:
        moved = FileTransferResult(**await self.stat_file(container_path, sha256=True))
        await self._started.download(container_path, os.fspath(local_path))
        return moved

    async def copy_to(self, other: Self, src_path: str, dst_path: str, **_: object) -> FileTransferResult:
        with TemporaryDirectory(prefix="ors-copy-") as folder:
            await self.download_to(src_path, f"{folder}/file")
            return await other.upload_from(f"{folder}/file", dst_path)

    async def set_network(self, network: SandboxNetworkPolicy) -> None:
        self._hosting.set_network(self._started, network)


class SandboxesAPI:
    """The same from sync code, on an event loop in the background."""

    def __init__(self, sandbox: AsyncSandboxesAPI) -> None:
        self._sandbox = sandbox
        self._portal = Portal(sandbox.stop)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._sandbox, name)
        if not inspect.iscoroutinefunction(value):
            return value
        return lambda *args, **named: self._portal.run(partial(value, *args, **named))

    def close(self) -> None:
        self._portal.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncOpenReward:
    """openreward's client, as far as environments need it: its sandboxes."""

    hosting: ClassVar[Hosting] = Hosting()
    """What sandboxes get in this process; `ors run` sets it."""

    def __init__(self, api_key: str | None = None, base_url: object = None, run_info: object = None) -> None:
        self.api_key = api_key or os.environ.get("OPENREWARD_API_KEY", "")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotOffered(f"openreward.{type(self).__name__}().{name}")

    def sandbox(
        self, settings: SandboxSettings, creation_timeout: float = 1800, secrets: object = None
    ) -> Any:
        if secrets:
            raise NotOffered("sandbox(secrets=...)")
        return AsyncSandboxesAPI(settings, self.hosting, creation_timeout)


class OpenReward(AsyncOpenReward):
    """The same for sync code."""

    def sandbox(self, *args: Any, **named: Any) -> SandboxesAPI:
        return SandboxesAPI(super().sandbox(*args, **named))
