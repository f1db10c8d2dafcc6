"""A program in a sandbox that takes one request after the other, such as a shell."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from ors._sandbox_observer import SANDBOX_OBSERVER
from ors.sandbox import Process, Sandbox
from ors.toolsets.output import Bounded

MOST_OUTPUT = 16 * 2**20
"""A request that prints more is stopped."""
NOT_STARTED = "[the program could not be started: the sandbox is over a limit of processes, memory or files]"
GRACE = 2.0
"""Seconds for a request to end after it was interrupted."""


@dataclass(frozen=True)
class ProgramReply:
    """How a request ended."""

    output: str
    tail: str | None
    """What the program says of the end; None if it was killed or has ended."""
    stopped: str = ""
    """Why the request was stopped, if it was."""


class Lasting:
    """A program that prints a mark, which the request names, after it has worked on a request."""

    def __init__(self, box: Sandbox, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._box, self._argv, self._env = box, argv, env
        self._process: Process | None = None
        self._rest = b""

    @property
    def process(self) -> Process | None:
        """The program, if it runs."""
        return self._process

    async def start(self, first: bytes = b"") -> None:
        """Starts the program, if it does not run."""
        if self._process is None:
            self._rest = b""
            self._process = await self._box.spawn(self._argv, env=self._env)
            await self._process.write(first)

    async def ask(
        self, request: Callable[[str], bytes], seconds: float, interrupt: Callable[[], Awaitable[None]]
    ) -> ProgramReply:
        """Sends a request, and reads until its mark; after `seconds` it is interrupted, then killed."""
        assert self._process is not None
        mark, kept = f"ors-{secrets.token_hex(8)}", Bounded()
        await self._process.write(request(mark))
        stopped = ""
        try:
            async with asyncio.timeout(seconds):
                tail = await self._until(mark, kept)
        except TimeoutError:
            SANDBOX_OBSERVER.get().killed("time")
            stopped = f"stopped after {seconds:g} seconds"
            tail = await self._interrupted(mark, kept, interrupt)
        except OverflowError:
            SANDBOX_OBSERVER.get().killed("output")
            stopped = f"stopped after {MOST_OUTPUT >> 20} MB of output"
            tail = await self._interrupted(mark, kept, interrupt)
        return ProgramReply(kept.text(), tail, stopped)

    async def _interrupted(
        self, mark: str, kept: Bounded, interrupt: Callable[[], Awaitable[None]]
    ) -> str | None:
        await interrupt()
        try:
            async with asyncio.timeout(GRACE):
                return await self._until(mark, kept, most=None)
        except TimeoutError:
            await self._killed(kept)
            return None

    async def _killed(self, kept: Bounded) -> None:
        assert self._process is not None
        self._process.kill()
        await self._process.wait()
        kept.add(self._rest)
        self._process = None

    async def _until(self, mark: str, kept: Bounded, most: int | None = MOST_OUTPUT) -> str | None:
        """Reads up to the mark; returns what follows it in its line, or None at the program's end.

        Raises:
            OverflowError: there is too much output.
        """
        assert self._process is not None
        sign = f"\n{mark} ".encode()
        while True:
            before, found, after = self._rest.partition(sign)
            if found and b"\n" in after:
                kept.add(before)
                tail, _, self._rest = after.partition(b"\n")
                return tail.decode(errors="replace")
            if not found and len(self._rest) > len(sign):  # the mark may still be incomplete
                kept.add(self._rest[: -len(sign)])
                self._rest = self._rest[-len(sign) :]
            if most is not None and kept.size > most:
                raise OverflowError
            data = await self._process.read()
            if not data:
                await self._killed(kept)
                return None
            self._rest += data
