"""Clients of ours that go on while a part of a cluster dies, and what became of each of their calls."""

import asyncio
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from ors.client import AsyncORS
from ors.errors import ORSError
from tests.support.call_ledger import Called, Ledger, Place

LINGERING = 24
"""Calls that are open when it happens, in a session each."""
PLAYERS = 4
"""Clients that play short episodes all the while, one after the other."""
FRESH = 8
"""Sessions that are asked for at the moment when it happens."""
STEADY_CALLS = 20
"""Calls of players that end well before it happens."""


@dataclass(slots=True)
class _Seen(Called):
    ended: float = 0.0


class Witnesses:
    """All go through one address; every call has a name of its own, which its tool leaves in a file."""

    def __init__(self, client: AsyncORS, url: str, traces: Path, mark: str) -> None:
        self._env = client.environment("yard")
        self._traces = traces
        self._mark = mark
        self._gate = traces.with_name(f"{mark}.gate")
        self._ledger = Ledger(url, traces, f"{mark}-player")
        self._lingering: dict[str, _Seen] = {}
        self._fresh: dict[str, _Seen] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._starting: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Opens the calls that linger, and lets the players play."""
        self._tasks = [asyncio.create_task(self._linger(n)) for n in range(LINGERING)]
        while sum(name in self._lingering for name in self._ran()) < LINGERING:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        self._ledger.play(PLAYERS)
        await self._ledger.more(STEADY_CALLS)

    def start_fresh(self) -> None:
        """Asks for new sessions, all at once."""
        self._starting = [asyncio.create_task(self._start(n)) for n in range(FRESH)]

    async def started(self) -> list[float]:
        """When the new sessions had the result of their first call, once all have."""
        await asyncio.gather(*self._starting)
        return sorted(call.ended for call in self._fresh.values() if call.became == "ok")

    async def told(self, dead: Container[Place | None]) -> list[float]:
        """When the calls that lingered there have ended, once all have."""
        lost = [call for call in self._lingering.values() if call.place in dead]
        while any(call.became == "open" for call in lost):  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        return sorted(call.ended for call in lost)

    async def answered(self) -> list[float]:
        """Lets the calls that linger end; gives when they had, once all have."""
        self._gate.touch()
        await asyncio.gather(*self._tasks)
        return sorted(call.ended for call in self._lingering.values())

    async def account(self, dead: Container[Place | None]) -> dict[str, object]:
        """Ends all, and holds what was seen against what ran."""
        await self._ledger.more(STEADY_CALLS)
        await self.answered()
        await self._ledger.end()
        calls: dict[str, Called] = {**self._lingering, **self._fresh, **self._ledger.calls}
        bad = [call for call in calls.values() if call.became != "ok"]
        ran = self._ran()
        return {
            "calls": len(calls),
            "calls lost": len(bad),
            "sessions lost": len({call.sid for call in bad}),
            "of them elsewhere": len({call.sid for call in bad if call.place not in dead}),
            "clients saw": sorted({call.became for call in bad}),
            "sessions not opened": dict(self._ledger.refused),
            "answered without a run": len([n for n, c in calls.items() if c.became == "ok" and n not in ran]),
            "tools that ran twice": len(ran) - len(set(ran)),
        }

    def _ran(self) -> list[str]:
        names = self._traces.read_text().split() if self._traces.exists() else []
        return [name for name in names if name.startswith(f"{self._mark}-")]

    async def _linger(self, number: int) -> None:
        name = f"{self._mark}-lingering{number}"
        async with self._env.session(split="train", index=0) as session:
            call = self._lingering[name] = _Seen(str(session.sid))
            try:
                await session.call_tool("linger", {"name": name, "gate": str(self._gate)})
                call.became = "ok"
            except ORSError as error:
                call.became = type(error).__name__
            call.ended = time.perf_counter()

    async def _start(self, number: int) -> None:
        """A new session and its first call; another one if it is lost, as long as that takes."""
        for attempt in range(100):
            name = f"{self._mark}-fresh{number}.{attempt}"
            try:
                async with self._env.session(split="train", index=0) as session:
                    call = self._fresh[name] = _Seen(str(session.sid))
                    await session.call_tool("note", {"name": name})
                    call.became, call.ended = "ok", time.perf_counter()
                    return
            except ORSError as error:
                self._refused(name, error)

    def _refused(self, name: str, error: ORSError) -> None:
        if name in self._fresh:
            self._fresh[name].became = type(error).__name__
        else:
            self._ledger.refused[type(error).__name__] += 1
