"""SandboxEnvironment, whose episodes have a sandbox each, and what tools that work in it are made of."""

import asyncio
import contextlib
import math
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ors._sandbox_observer import SANDBOX_OBSERVER
from ors.environment import Copier, Environment, Toolset, tool
from ors.errors import InvalidEnvironment, SandboxLimit
from ors.sandbox import Pool, Process, Sandbox, SandboxSpec, open_sandbox
from ors.types import ToolOutput

FORKED = "this is a fork with a new program: folder, variables and jobs were not copied"


class SandboxEnvironment(Environment):
    """An environment whose episodes have a sandbox each: `self.box`.

    A subclass that defines `setup` or `teardown` calls `await super().setup()` or `await super().teardown()`.
    """

    sandbox: ClassVar[SandboxSpec | Pool] = SandboxSpec()
    """The kind of sandbox, or a pool to take it from."""
    box: Sandbox
    """The sandbox of this episode."""

    async def setup(self) -> None:
        """Opens the sandbox."""
        kind = self.sandbox
        self.box = await (kind.take() if isinstance(kind, Pool) else open_sandbox(kind))

    async def teardown(self) -> None:
        """Ends the sandbox, and everything in it."""
        if hasattr(self, "box"):
            await self.box.close()

    async def grade(self) -> float:
        """The reward of the work in the sandbox; the tool `submit` asks for it."""
        raise InvalidEnvironment(f"{type(self).__name__} has the tool submit, but no method grade()")

    async def fork(self) -> Self:
        """A copy of this episode, with a sandbox that has the same files. Programs are not copied.

        Raises:
            TypeError: an attribute cannot be copied; the message names it.
        """
        (made,) = await self._forks(1)
        return made

    async def _forks(self, count: int) -> list[Self]:
        """Many copies, whose files are read once."""
        # The server makes the toolsets of the copies.
        toolsets = self.__dict__.get("_toolset_instances", {})
        made: list[Self] = [
            Copier({id(self.box): self.box, id(toolsets): {}}).copy(self) for _ in range(count)
        ]
        for copy, box in zip(made, await self.box.fork(count), strict=True):
            copy.box = box
        return made

    fork.together = _forks  # type: ignore[attr-defined]


def box_of(env: Any) -> Sandbox:
    box: Sandbox | None = getattr(env, "box", None)
    if box is None:
        how = "derive it from SandboxEnvironment, and call its setup()"
        raise InvalidEnvironment(f"{type(env).__name__} has no sandbox: {how}")
    return box


class SandboxTools:
    """Tools that work in the sandbox of their environment, `self._box`. A toolset need not be a `Toolset`."""

    _program: "Lasting | None" = None

    def __init__(self, env: Any) -> None:
        self.env = env
        self._box = box_of(env)

    def fork(self, env: Any) -> Self:
        """The same tools for a forked sandbox. Programs are not copied, but start anew, and say so."""
        made = type(self)(env)
        if self._program and made._program and (self._program.process or self._program.note):
            made._program.note = FORKED
        return made


class Submit(Toolset):
    """The tool `submit`: asks the environment's `grade()` for the reward.

    Work that is over a limit of the sandbox, such as too many files, earns 0: that is the agent's doing.
    """

    @tool
    async def submit(self) -> ToolOutput:
        """Submit your work. It is graded, and the episode ends."""
        try:
            reward, text = float(await self.env.grade()), "Submitted."
        except SandboxLimit as limit:
            if limit.reason == "waiting":  # for a place in a pool
                raise
            reward, text = 0.0, f"Submitted, but it cannot be graded: {limit}"
        return ToolOutput(text, reward=reward, finished=True)


# ── Programs that last ───────────────────────────────────────────────────────────────────────────

MOST_OUTPUT = 16 * 2**20
"""A request that prints more is stopped."""
LONGEST_REPORT = 1 << 16
GRACE = 2.0
"""Seconds for a request to end after it was interrupted."""
NOT_STARTED = "the program could not be started: the sandbox is over a limit of processes, memory or files"
LONGEST = 16_000
"""Most characters of one result."""

Interrupt = Callable[[], Awaitable[None]]


def shortened(text: str, longest: int = LONGEST) -> str:
    """Cuts a long text in the middle, and says how much is missing."""
    if len(text) <= longest:
        return text
    half = longest // 2
    missing = text[half:-half]
    lines = missing.count("\n")
    return f"{text[:half]}\n[… {len(missing):,} characters, {lines:,} lines left out …]\n{text[-half:]}"


class Bounded:
    """Output of which the first and the last part are kept."""

    def __init__(self, part: int = LONGEST * 4) -> None:
        self._part = part
        self._first, self._last = bytearray(), bytearray()
        self.size = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        room = self._part - len(self._first)
        self._first += data[:room]
        self._last += data[room:]
        del self._last[: -self._part]

    def text(self) -> str:
        missing = self.size - len(self._first) - len(self._last)
        note = f"\n[… {missing:,} bytes left out …]\n".encode() if missing else b""
        return shortened((self._first + note + self._last).decode(errors="replace"))


@dataclass(frozen=True)
class ProgramReply:
    """How a request ended. All of it comes from inside the sandbox: nothing of it is believed."""

    output: str
    report: tuple[int, ...] | None
    """The numbers that the program reports at the end; None if it was killed or has ended."""
    stopped: str = ""
    """Why the request was stopped, if it was."""
    exit_code: int | None = None
    """Status of a program that has ended by itself."""

    def text(self, *notes: str) -> str:
        said = "; ".join(note for note in (self.stopped, *notes) if note)
        parts = (self.output.strip("\n"), said and f"[{said}]")
        return "\n".join(part for part in parts if part) or "[no output]"


class Lasting:
    """A program that reports the end of each request on descriptor 3, by the number of the request.

    What is printed is on other descriptors, and so is never taken for a report.
    """

    def __init__(self, box: Sandbox, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._box, self._argv, self._env = box, argv, env
        self.process: Process | None = None
        self.reported = b""
        """What came on descriptor 3 since the request, or the last part of it."""
        self.note = ""
        """What the next reply has to say."""

    async def start(self) -> None:
        if self.process is None:
            self.process = await self._box.spawn(self._argv, env=self._env, reports=True)

    async def ask(
        self, request: Callable[[int], bytes], seconds: float, interrupt: Interrupt
    ) -> ProgramReply:
        """Sends a request, and reads until its report; after `seconds` it is interrupted, then killed."""
        assert self.process is not None
        process, number, kept = self.process, secrets.randbelow(10**15), Bounded()
        self.reported, stopped, report = b"", "", None
        try:
            async with asyncio.timeout(seconds):
                report = await self._answer(process, request(number), number, kept)
        except TimeoutError:
            SANDBOX_OBSERVER.get().killed("time")
            stopped = f"stopped after {seconds:g} seconds"
        except OverflowError:
            SANDBOX_OBSERVER.get().killed("output")
            stopped = f"stopped after {MOST_OUTPUT >> 20} MB of output"
        if stopped:
            await interrupt()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE):
                    report = await self._answer(process, b"", number, kept, most=math.inf)
        if report is None:
            return await self._end(process, kept, stopped)
        return ProgramReply(kept.text(), report, stopped)

    async def _end(self, process: Process, kept: Bounded, stopped: str) -> ProgramReply:
        self.process = None
        process.kill()
        try:
            code = await process.wait()
        except SandboxLimit:
            return ProgramReply("", None, NOT_STARTED)
        kept.add(await process.read_stderr())
        if process.limit and not stopped:
            stopped = f"killed: over the {process.limit} limit"
        return ProgramReply(kept.text(), None, stopped, None if stopped else code)

    async def _answer(
        self, process: Process, request: bytes, number: int, kept: Bounded, most: float = MOST_OUTPUT
    ) -> tuple[int, ...] | None:
        """Sends a request; returns its report, or None at its end. Raises OverflowError over `most` bytes."""
        output = asyncio.ensure_future(_keep(process, kept, most))
        report = asyncio.ensure_future(self._report(process, number, most))
        tasks = (output, report, asyncio.ensure_future(process.write(request)))
        try:
            await asyncio.wait({output, report}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if report.cancelled() or (report.exception() is None and report.result() is None):
            return None if output.cancelled() else output.result()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):  # only what has come: it was printed before the report
                await _keep(process, kept, math.inf)
        return report.result()

    async def _report(self, process: Process, number: int, most: float) -> tuple[int, ...] | None:
        size, numbers = 0, re.compile(rb"(?<!\d)%d((?: \d{1,10})+) ?[^ \d]" % number)
        while data := await process.read_report():
            size += len(data)
            self.reported = self.reported[-LONGEST_REPORT:] + data
            if found := numbers.search(self.reported):
                return tuple(map(int, found[1].split()))
            if size > most:
                raise OverflowError
        return None


async def _keep(process: Process, kept: Bounded, most: float) -> None:
    while data := await process.read():
        kept.add(data)
        if kept.size > most:
            raise OverflowError
