"""Sandbox: every backend has this one, which asks the agent inside."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from ors._sandbox_observer import SANDBOX_OBSERVER
from ors.errors import SandboxDead, SandboxLimit
from ors.sandbox.grading import GRADER, GRADER_ENV, put_files, run_cases
from ors.sandbox.inside.archive import CHANGES, pack, unpack
from ors.sandbox.opening import Cell, SandboxBackend, start
from ors.sandbox.process import Process, Snapshot, asked, copied, copying, encoded, parts
from ors.sandbox.spec import (
    LARGEST_ANSWER,
    Cases,
    ExecResult,
    GradedCases,
    SandboxSpec,
    SandboxView,
    view,
)

UNANSWERED = 5.0
"""Seconds after a program's time limit until the sandbox counts as dead."""
COUNTED = ("time", "output", "memory", "inodes")
OUTPUT = PIECE = 1 << 20
FILE = 16 << 20
FILE_SECONDS = 60.0
SLOWEST_COPY = 8 << 20
"""Bytes a second that a copy of files may take the time for."""
LONGEST_PATH = 4094
FORKS_AT_ONCE = 16


async def open_box(
    spec: SandboxSpec,
    files: Snapshot | None = None,
    among: Sequence[SandboxBackend] | None = None,
    within: str = "",
) -> "Sandbox":
    """Opens a sandbox, with the files of a snapshot; without the links that leave the folder `within`."""
    began = time.monotonic()
    backend, cell = await start(spec, among)
    box = Sandbox(cell.spec, backend, cell)
    box.observer.opened(time.monotonic() - began)
    if files is not None:
        try:
            await box._fill(files, within)
        except BaseException:
            await box.close()
            raise
    return box


class Sandbox:
    """An isolated place for programs and files: `async with await open_sandbox(spec) as box`.

    Paths are those inside; relative ones start at `spec.workdir`. Its methods raise SandboxDead at its end.
    """

    def __init__(self, spec: SandboxSpec, backend: SandboxBackend, cell: Cell) -> None:
        self.spec = spec
        self.backend = backend.name
        folder = str(cell.launched.settings["folder"])
        self.work = f"{folder}{spec.workdir}"
        """The folder `spec.workdir`, as programs see it; only the backend `none` has another path."""
        self.cell = cell
        self.observer = SANDBOX_OBSERVER.get()
        cell.gone.add_done_callback(lambda _: self.observer.closed())
        self._backend = backend
        self._channel = cell.channel
        self._places = {each: each for each in ("work", "home/agent", *([] if folder else ["tmp"]))}
        self._filling: asyncio.Task[None] | None = None
        self._env = spec.variables(folder)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends everything in the sandbox; returns when nothing is left. May be called twice."""
        self._kernel_kills()
        if self._filling is not None:
            self._filling.cancel()
        await self.cell.end()

    # ── Programs ─────────────────────────────────────────────────────────────────────────────────

    async def exec(
        self,
        argv: Sequence[str] | str,
        *,
        stdin: bytes = b"",
        timeout: float = 30.0,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        max_output: int = OUTPUT,
    ) -> ExecResult:
        """Runs a program to completion; a string goes to `sh -c`.

        Beyond `timeout` seconds, or `max_output` bytes on a stream, the program and its group are killed.

        Raises:
            SandboxLimit: there are too many processes to start one more.
        """
        if timeout <= 0 or max_output < 1:
            raise ValueError("timeout and max_output must be over 0")
        process = await self._start(argv, cwd, env, stdin=stdin, timeout=timeout, most=max_output)
        try:
            await self._ended(process, stdin[PIECE:], timeout)
        except asyncio.CancelledError:
            process.kill()
            raise
        return process.result()

    async def _ended(self, process: Process, more: bytes, timeout: float) -> None:
        feeding = asyncio.ensure_future(process.write(more, end=True)) if more else None
        try:
            await asyncio.wait([process.ended], timeout=timeout + UNANSWERED)
        finally:
            if feeding is not None:
                feeding.cancel()
        if not process.ended.done():
            raise self._unanswered()

    def _unanswered(self) -> SandboxDead | SandboxLimit:
        """Kills the sandbox, since the host has stopped it, or its programs keep the agent from answering."""
        self.observer.killed("unanswered")
        text, stopped = "the sandbox did not answer, and was killed", self.cell.stopped
        self.cell.kill("" if stopped else "time")
        return SandboxDead(text) if stopped else SandboxLimit(text, reason="time")

    def _judge(self, process: Process, ended: asyncio.Future[tuple[int, str]]) -> None:
        """Counts the limit that ended a program; where the kernel did, for its memory, names it."""
        if ended.cancelled() or ended.exception() is not None:
            return
        status, limit = ended.result()
        # The word comes from inside, unless the whole sandbox has ended: then that was counted already.
        if limit in COUNTED and self._channel.fate is None:
            self.observer.killed(limit)
        elif not limit and status in (-9, 137) and self._kernel_kills():
            process.limit = "memory"

    def _kernel_kills(self) -> int:
        """Counts the processes that the kernel has killed for their memory since the last time."""
        for _ in range(kills := self.cell.oom_kills()):
            self.observer.killed("memory")
        return kills

    async def spawn(
        self,
        argv: Sequence[str] | str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        reports: bool = False,
    ) -> Process:
        """Starts a program in the background, with streams.

        With `reports` the program can also write to descriptor 3, which `Process.read_report` reads.
        """
        return await self._start(argv, cwd, env, reports=reports)

    async def _start(
        self,
        argv: Sequence[str] | str,
        cwd: str | None,
        env: Mapping[str, str] | None,
        *,
        stdin: bytes | None = None,
        timeout: float = 0.0,
        most: int = 0,
        reports: bool = False,
    ) -> Process:
        """Starts a program. Input that is given here ends, and the output is kept."""
        command = encoded(argv, {**self._env, **(env or {})})
        await self._filled()
        process = Process(self._channel, keep=stdin is not None)
        process.ended.add_done_callback(lambda ended: self._judge(process, ended))
        first, end = (stdin or b"")[:PIECE], stdin is not None and len(stdin) <= PIECE
        process.expect_taken(len(first))
        folder = os.fsencode(cwd or ".")
        self._channel.send("spawn", process.number, *command, folder, first, end, timeout, most, reports)
        return process

    # ── Files ────────────────────────────────────────────────────────────────────────────────────

    async def read_file(self, path: str, max_bytes: int = FILE) -> bytes:
        """The content of a regular file.

        Raises:
            OSError: there is no such file, or it is a folder, a pipe or a device.
            SandboxLimit: it is larger than `max_bytes`.
        """
        return await self._asked(path, max_bytes, "read", os.fsencode(path), max_bytes)

    async def write_file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Writes a file, and makes the folders above it.

        Raises:
            OSError: that is not possible.
            SandboxLimit: the disk is full.
        """
        if len(data) > max(self.spec.sizes.values()):
            raise SandboxLimit(f"{path}: the disk has no room for {len(data):,} bytes", reason="disk")
        await self._asked(path, 0, "write", os.fsencode(path), data, mode)

    async def _asked(self, path: str, most: int, operation: str, *arguments: object) -> bytes:
        await self._filled()
        content = await asked(self._channel, FILE_SECONDS, path, most, operation, *arguments)
        if content is None:
            raise self._unanswered()
        return content

    async def upload(self, local: str | Path, path: str) -> None:
        """Copies a file or folder of the host to `path`."""
        (folder, source), (base, target) = parts(Path.cwd(), local), parts(self.spec.workdir, path)
        files, names = Snapshot(self._room()), {os.fsencode(source): os.fsencode(target)}
        try:
            await asyncio.to_thread(pack, os.fsencode(folder), names, files.add)
            await self._filled()
            await self._restore(files, base)
        finally:
            files.close()

    async def download(self, path: str, local: str | Path) -> None:
        """Copies a file or folder to `local` on the host. Symbolic links are left out.

        Raises:
            SandboxLimit: there is more than its disk holds.
        """
        (folder, target), (base, source) = parts(Path.cwd(), local), parts(self.spec.workdir, path)
        where, top = os.fsencode(folder), os.fsencode(target)
        # What the host cannot take is refused before half of a tree is there.
        longest = LONGEST_PATH - len(where)
        files = await self._packed(base, {source: target}, longest=longest)
        try:
            await asyncio.to_thread(unpack, where, files.reader(), links=False, top=top)
        finally:
            files.close()

    async def look(self) -> SandboxView:
        """Its processes, memory and files, for people who watch. Changes nothing."""
        answer = await self._asked("", LARGEST_ANSWER, "look")
        group = self.cell.launched.cgroup
        try:
            return view(answer, self.backend, self.spec, None if group is None else group.memory())
        except ValueError as error:
            self.cell.kill("killed")
            raise SandboxLimit(f"{error}; it was killed", reason="killed") from None

    async def snapshot(self) -> Snapshot:
        """A copy of all files in the writable places. Processes are not part of it."""
        changes = self.cell.launched.settings["changes"]  # of a writable root
        return await self._packed(CHANGES if changes else "/", changes or self._places)

    def _room(self) -> int:
        # Each file takes a head and a path beside its content.
        return self.spec.disk + 2 * self.spec.tmp + 256 * self.spec.inodes

    async def _packed(self, base: str, names: Mapping[str, str], *, longest: int = 0) -> Snapshot:
        """Files of the sandbox; for the host with `longest`, the length of a path."""
        await self._filled()
        process = Process(self._channel)
        encoded = {os.fsencode(name): os.fsencode(renamed) for name, renamed in names.items()}
        most = self._room()
        limits = (longest, most) if longest else ()
        self._channel.send("pack", process.number, os.fsencode(base), encoded, limits)
        files, path = Snapshot(most), f"{base}/{next(iter(names))}"
        try:
            async with copying(path, self._seconds()):
                while data := await process.read(PIECE):
                    files.add(data)
                await copied(process, path)
        except BaseException:
            process.kill()
            files.close()
            raise
        return files

    def _seconds(self) -> float:
        return FILE_SECONDS + self._room() / SLOWEST_COPY

    def _fill(self, files: Snapshot, within: str = "") -> "asyncio.Task[None]":
        """Begins to put files into this sandbox, which is new. Whoever uses it waits for them."""
        self._filling = asyncio.ensure_future(self._restore(files, within=within))
        self._filling.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._filling

    async def _filled(self) -> None:
        filling = self._filling
        if filling is not None:
            await asyncio.wait([filling])
            if not filling.cancelled():  # by `close`: whoever waits is told that the sandbox has ended
                filling.result()
                self._filling = None

    async def _restore(self, files: Snapshot, base: str = "/", within: str = "") -> None:
        """Puts files into the sandbox, without the links that lead out of the folder `within`."""
        process = Process(self._channel)
        self._channel.send("unpack", process.number, os.fsencode(base), os.fsencode(within))
        try:
            async with copying(base, self._seconds()):
                await process.write_all(files.pieces(), end=True)
                await copied(process, base)
        except BaseException:
            process.kill()
            raise

    # ── Other sandboxes ──────────────────────────────────────────────────────────────────────────

    async def fork(self, n: int = 1) -> "list[Sandbox]":
        """Opens `n` new sandboxes with the same files. Processes are not copied.

        The files are those of this moment. They are copied in the background; the first use of a new sandbox
        waits for its own.
        """
        files = await self.snapshot()
        places = asyncio.Semaphore(FORKS_AT_ONCE)

        async def sibling() -> Sandbox:
            async with places:
                return await open_box(self.spec, None, [self._backend])

        opening = [asyncio.ensure_future(sibling()) for _ in range(n)]
        try:
            opened = await asyncio.gather(*opening)
        except BaseException:
            files.close()
            for one in opening:
                one.cancel()
            for each in await asyncio.gather(*opening, return_exceptions=True):
                if isinstance(each, Sandbox):
                    await each.close()
            raise
        filled = asyncio.gather(*(box._fill(files) for box in opened), return_exceptions=True)
        filled.add_done_callback(lambda _: files.close())
        return list(opened)

    async def grade(
        self,
        argv: Sequence[str] | str,
        *,
        files: Mapping[str, bytes | str | Path] | None = None,
        stdin: bytes = b"",
        timeout: float = 60.0,
        max_output: int = OUTPUT,
    ) -> ExecResult:
        """Runs a grader in a second sandbox, over a copy of `spec.workdir`.

        `files` are put into the folder that the grader starts in, which the agent's programs never saw.
        """
        async with self._graders() as grader, await grader() as box:
            await put_files(box, files or {})
            return await box.exec(
                argv, stdin=stdin, timeout=timeout, cwd=GRADER, env=GRADER_ENV, max_output=max_output
            )

    async def grade_cases(
        self, argv: Sequence[str] | str, cases: Cases, *, timeout: float = 10.0, exact: bool = False
    ) -> GradedCases:
        """Runs a program once per case, each time in a new sandbox over the same copy of `spec.workdir`.

        A case is an input and the output that is expected of it, which never enters a sandbox. It passes if
        the program ends with status 0 within `timeout` seconds and prints the expected output. White space at
        the end of lines and of the output does not count, unless the comparison is `exact`.

        Raises:
            SandboxLimit: `spec.workdir` cannot be copied, since it is over a limit.
        """
        async with self._graders() as grader:
            return await run_cases(grader, argv, cases, timeout, exact)

    @asynccontextmanager
    async def _graders(self) -> "AsyncIterator[Callable[[], Awaitable[Sandbox]]]":
        """Opens sandboxes with a copy of `spec.workdir`, all as it is at this moment."""
        folder = self.spec.workdir
        work = await self._packed("/", {folder[1:]: folder[1:]})
        try:
            yield lambda: open_box(self.spec, work, [self._backend], within=folder)
        finally:
            work.close()
