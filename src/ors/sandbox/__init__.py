"""Isolated places for programs and files that nobody trusts: `async with await open_sandbox() as box`."""

import asyncio
from collections import deque

from ors._sandbox_observer import SANDBOX_OBSERVER
from ors.errors import SandboxDead, SandboxLimit, SandboxUnavailable
from ors.sandbox.box import Sandbox, open_box
from ors.sandbox.process import Process, Snapshot
from ors.sandbox.spec import Allow, ExecResult, GradedCases, SandboxSpec, SandboxView

__all__ = [
    "Allow",
    "ExecResult",
    "GradedCases",
    "Pool",
    "Process",
    "Sandbox",
    "SandboxDead",
    "SandboxLimit",
    "SandboxSpec",
    "SandboxUnavailable",
    "SandboxView",
    "Snapshot",
    "open_sandbox",
]


async def open_sandbox(spec: SandboxSpec | None = None, *, files: Snapshot | None = None) -> Sandbox:
    """Opens a sandbox, with the files of a snapshot if one is given.

    Raises:
        SandboxUnavailable: none can be opened on this machine; the message says why, and what to do.
    """
    return await open_box(spec or SandboxSpec(), files)


class Pool:
    """Sandboxes of one kind: at most `limit` in use, `warm` ready beforehand, the rest wait in a fair line.

    A sandbox is used once: its `close` ends it, and gives its place to the next in the line.
    """

    def __init__(
        self, spec: SandboxSpec | None = None, *, limit: int = 64, warm: int = 4, wait_seconds: float = 60.0
    ) -> None:
        if limit < 1 or warm < 0:
            raise ValueError("limit must be over 0, and warm not under 0")
        self.spec = spec or SandboxSpec()
        self.limit, self.warm, self.wait_seconds = limit, warm, wait_seconds
        self.ready: deque[Sandbox] = deque()
        """Sandboxes that wait for a caller."""
        self.waiting = 0
        """Callers in the line."""
        self._places = asyncio.Semaphore(limit)
        self._used: set[Sandbox] = set()
        self._filling: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def open(self) -> int:
        """Sandboxes in use."""
        return len(self._used)

    async def take(self) -> Sandbox:
        """A sandbox for the caller, who closes it; waits in the line if all are in use.

        Raises:
            SandboxLimit: no place became free within `wait_seconds`.
            SandboxDead: the pool was closed.
            SandboxUnavailable: none can be opened on this machine.
        """
        await self._place()
        try:
            box = self._warm_one() or await open_box(self.spec)
            if self._closed:
                await box.close()
                raise SandboxDead("the pool is closed")
        except BaseException:
            self._places.release()
            raise
        self._used.add(box)
        box.cell.gone.add_done_callback(lambda _: self._returned(box))
        self._fill()
        return box

    async def _place(self) -> None:
        observer = SANDBOX_OBSERVER.get()
        self.waiting += 1
        observer.waiting(1)
        try:
            async with asyncio.timeout(self.wait_seconds):
                await self._places.acquire()
        except TimeoutError:
            text = f"no sandbox became free within {self.wait_seconds:g} s; {self.limit} are in use"
            raise SandboxLimit(text, reason="waiting") from None
        finally:
            self.waiting -= 1
            observer.waiting(-1)

    def _warm_one(self) -> Sandbox | None:
        while self.ready:
            box = self.ready.popleft()
            if not box.cell.gone.done():
                return box
        return None

    def _returned(self, box: Sandbox) -> None:
        self._used.discard(box)
        self._places.release()

    def _fill(self) -> None:
        """Opens sandboxes until enough are ready; a failure shows when one is taken."""
        if self._filling is None or self._filling.done():
            self._filling = asyncio.ensure_future(self.fill())
            self._filling.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def fill(self) -> None:
        """Opens sandboxes until enough are ready. Raises SandboxUnavailable."""
        while len(self.ready) < self.warm and not self._closed:
            self.ready.append(await open_box(self.spec))

    async def close(self) -> None:
        """Ends all sandboxes, those in use too."""
        self._closed = True
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.wait([self._filling])
        await asyncio.gather(*(box.close() for box in (*self.ready, *self._used)))
        self.ready.clear()

    async def __aenter__(self) -> "Pool":
        await self.fill()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
