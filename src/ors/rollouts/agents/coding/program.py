"""Program: a foreign program that runs for one episode, and ends with all that it has started."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Self

LARGEST_FILE = 2**30
"""Bytes that it may write into a file, such as its output; the system ends it there."""
READ_BYTES = 4 * 2**20
"""Of its output, the end. Tokens are counted all over it."""
KILL_SECONDS = 2.0
_MARK = "ORS_EPISODE"
_PASSED_ON = frozenset((
    "PATH", "LANG", "LC_ALL", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
))  # fmt: skip
"""Variables of ours that it gets. Others may be secrets."""


class Program:
    """A running program, in an empty folder and with a home of its own. Its task is its standard input."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._mark = os.urandom(16).hex()
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, command: Sequence[str], task: str, variables: Mapping[str, str]) -> Self:
        """Starts it.

        Raises:
            OSError: it cannot be started.
        """
        kept = {name: value for name, value in os.environ.items() if name in _PASSED_ON}
        own = {"HOME": str(self._home), "TMPDIR": str(self._home), "NO_PROXY": "127.0.0.1", _MARK: self._mark}
        with self._streams(task) as (stdin, stdout, stderr):
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=self._home / "work",
                env=kept | own | dict(variables),
                start_new_session=True,
            )
        if sys.platform == "linux":
            import resource

            with suppress(OSError):
                resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
        return self

    @contextmanager
    def _streams(self, task: str) -> Iterator[tuple[IO[bytes], ...]]:
        (self._home / "work").mkdir()
        (self._home / "task").write_text(task, encoding="utf-8", errors="replace")
        with ExitStack() as files:
            given = files.enter_context(open(self._home / "task", "rb"))
            printed = (files.enter_context(open(self._home / name, "wb")) for name in ("output", "errors"))
            yield given, *printed

    async def wait(self) -> int:
        """Waits for its end; returns its exit status, negative for a signal."""
        assert self._process is not None
        return await self._process.wait()

    def printed(self, stream: str) -> str:
        """The end of its `output` or `errors`."""
        with open(self._home / stream, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - READ_BYTES))
            return file.read(READ_BYTES).decode(errors="replace")

    async def kill(self) -> None:
        """Kills it, and everything that it has started."""
        if self._process is not None:
            await asyncio.to_thread(self._kill_all, self._process.pid)

    def _kill_all(self, group: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        until = time.monotonic() + KILL_SECONDS
        # Those in sessions of their own still have its variable.
        while (found := _marked(self._mark)) and time.monotonic() < until:
            for pid in found:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


def _marked(mark: str) -> list[int]:
    found, variable = [], f"{_MARK}={mark}".encode()
    for folder in Path("/proc").iterdir() if sys.platform == "linux" else ():
        with suppress(OSError):
            if folder.name.isdigit() and variable in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found
