"""Sandbox: what every sandbox can do."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from ors.sandbox.process import Process
from ors.sandbox.snapshot import Snapshot
from ors.sandbox.spec import Cases, ExecResult, GradedCases, SandboxSpec
from ors.sandbox.view import SandboxView

OUTPUT = 1 << 20
FILE = 16 << 20


class Sandbox(Protocol):
    """An isolated place for programs and files: `async with await open_sandbox(spec) as box`.

    Paths are those inside; relative ones start at /work. All methods raise SandboxDead after its end.
    """

    spec: SandboxSpec
    backend: str
    work: str
    """The folder /work, as programs see it; only the backend `none` has another path."""

    async def exec(
        self,
        argv: Sequence[str] | str,
        *,
        stdin: bytes = b"",
        timeout: float = 30.0,
        cwd: str = "/work",
        env: Mapping[str, str] | None = None,
        max_output: int = OUTPUT,
    ) -> ExecResult:
        """Runs a program to its end; a string goes to `sh -c`.

        Beyond `timeout` seconds, or `max_output` bytes on a stream, the program and its group are killed.

        Raises:
            SandboxLimit: there are too many processes to start one more.
        """

    async def spawn(
        self,
        argv: Sequence[str] | str,
        *,
        cwd: str = "/work",
        env: Mapping[str, str] | None = None,
        reports: bool = False,
    ) -> Process:
        """Starts a program that runs beside others, with streams.

        With `reports` the program can also write to descriptor 3, which `Process.read_report` reads.
        """

    async def read_file(self, path: str, max_bytes: int = FILE) -> bytes:
        """The content of a regular file.

        Raises:
            OSError: there is no such file, or it is a folder, a pipe or a device.
            SandboxLimit: it is larger than `max_bytes`.
        """

    async def write_file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Writes a file, and makes the folders above it.

        Raises:
            OSError: that is not possible.
            SandboxLimit: the disk is full.
        """

    async def upload(self, local: str | Path, path: str) -> None:
        """Copies a file or folder of the host to `path`."""

    async def download(self, path: str, local: str | Path, max_bytes: int | None = None) -> None:
        """Copies a file or folder to `local` on the host. Symbolic links are left out.

        Raises:
            SandboxLimit: there is more than `max_bytes`, by default the size of the disk.
        """

    async def look(self) -> SandboxView:
        """Its processes, memory and files, for people who watch. Changes nothing."""

    async def snapshot(self) -> Snapshot:
        """A copy of all files in the writable places. Processes are not part of it."""

    async def fork(self, n: int = 1) -> "list[Sandbox]":
        """Opens `n` new sandboxes with the same files. Processes are not copied.

        The files are those of this moment. They are copied in the background; the first use of a new sandbox
        waits for its own.
        """

    async def grade(
        self,
        argv: Sequence[str] | str,
        *,
        files: Mapping[str, bytes | str | Path] | None = None,
        stdin: bytes = b"",
        timeout: float = 60.0,
        max_output: int = OUTPUT,
    ) -> ExecResult:
        """Runs a grader in a second sandbox, over a copy of /work.

        `files` are put into the folder that the grader starts in, which the agent's programs never saw.
        """

    async def grade_cases(
        self, argv: Sequence[str] | str, cases: Cases, *, timeout: float = 10.0, exact: bool = False
    ) -> GradedCases:
        """Runs a program in /work once per case, each time in a new sandbox over the same copy of /work.

        A case is an input and the output that is expected of it, which never enters a sandbox. It passes if
        the program ends with status 0 within `timeout` seconds and prints the expected output. White space at
        the end of lines and of the output does not count, unless the comparison is `exact`.

        Raises:
            SandboxLimit: /work cannot be copied, since it is over a limit.
        """

    async def close(self) -> None:
        """Ends everything in the sandbox; returns when nothing is left. May be called twice."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
