"""Program: a foreign program that runs for one episode, and ends with all that it has started."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

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

    def __init__(self, home: Path, task: str) -> None:
        self._home, self._mark = home, os.urandom(16).hex()
        self._process: asyncio.subprocess.Process | None = None
        (home / "work").mkdir()
        (home / "task").write_text(task, encoding="utf-8", errors="replace")

    async def start(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """Starts it.

        Raises:
            OSError: it cannot be started.
        """
        home = str(self._home)
        env = {name: value for name, value in os.environ.items() if name in _PASSED_ON} | dict(variables)
        env |= {"HOME": home, "TMPDIR": home, "NO_PROXY": "127.0.0.1", _MARK: self._mark}
        work = self._home / "work"
        files = [os.open(self._home / "task", os.O_RDONLY)]
        files += [os.open(self._home / name, os.O_WRONLY | os.O_CREAT) for name in ("output", "errors")]
        started = partial(asyncio.create_subprocess_exec, cwd=work, env=env, start_new_session=True)
        try:
            self._process = await started(*command, stdin=files[0], stdout=files[1], stderr=files[2])
        finally:
            for file in files:
                os.close(file)
        if sys.platform == "linux":
            import resource

            with suppress(OSError):
                resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))

    async def wait(self) -> int:
        """Waits for its end; returns its exit status, negative for a signal."""
        assert self._process is not None
        return await self._process.wait()

    async def kill(self) -> int:
        """Kills it and everything that it has started, as far as they still run; returns its exit status."""
        assert self._process is not None
        await asyncio.to_thread(self._kill_all, self._process.pid)
        return await self.wait()

    def printed(self, stream: str) -> str:
        """The end of its `output` or `errors`."""
        with open(self._home / stream, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - READ_BYTES))
            return file.read(READ_BYTES).decode(errors="replace")

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
