"""Records every call of a load while servers die."""

import asyncio
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from ors._protocol import session_id_route
from ors.client import AsyncORS, AsyncSession
from ors.errors import ORSError
from tests.support.waiting import until

ALLOWED = {"ok", "SessionLost", "ToolFailed"}
"""How a call may end when its server may die. None may stay open."""


Place = tuple[int, int]
"""A server: slot and incarnation."""


@dataclass(slots=True)
class Called:
    """A call, and how it ended."""

    sid: str
    became: str = "open"

    @property
    def place(self) -> Place | None:
        """The server of its session."""
        return session_id_route(self.sid)


class Ledger:
    """Plays episodes, and records how each of their calls ended."""

    def __init__(self, url: str, traces: Path, mark: str) -> None:
        self._url = url
        self._traces = traces
        self._mark = mark
        self.calls: dict[str, Called] = {}
        self.refused: Counter[str] = Counter()  # sessions that could not be opened, by error
        self._stop = asyncio.Event()
        self._players: list[asyncio.Task[None]] = []

    def play(self, count: int) -> None:
        """Starts players."""
        self._players = [asyncio.create_task(self._play(number)) for number in range(count)]

    async def more(self, count: int) -> None:
        """Waits until this many more calls have succeeded."""
        wanted = self._well() + count
        await until(lambda: self._well() >= wanted or any(player.done() for player in self._players))
        assert not any(player.done() for player in self._players)

    async def end(self) -> None:
        """Ends the players, each after its episode."""
        self._stop.set()
        await asyncio.gather(*self._players)

    async def settle(self, dead: Container[Place | None] | None = None) -> None:
        """Ends the players; compares what they saw with what ran, and what was lost with the dead servers."""
        await self.end()
        assert max(self.ran().values()) == 1, "a tool ran twice"
        assert {name for name, call in self.calls.items() if call.became == "ok"} <= self.ran().keys()
        became = Counter(call.became for call in self.calls.values())
        assert set(became) <= ALLOWED, became
        if dead is not None:
            assert all(call.place in dead for call in self.calls.values() if call.became != "ok"), self.calls

    def ran(self) -> Counter[str]:
        """Returns how often each call has run."""
        return Counter(name for name in self._traces.read_text().split() if name.startswith(self._mark))

    def _well(self) -> int:
        return sum(call.became == "ok" for call in self.calls.values())

    async def _play(self, number: int) -> None:
        async with AsyncORS(self._url) as client:
            env = client.environment("yard")
            episode = 0
            while not self._stop.is_set():
                episode += 1
                try:
                    async with env.session(split="train", index=0) as session:
                        await self._episode(session, f"{self._mark}{number}.{episode}")
                except ORSError as error:
                    self.refused[type(error).__name__] += 1

    async def _episode(self, session: AsyncSession, mark: str) -> None:
        for number in range(4):
            name = f"{mark}.{number}"
            call = self.calls[name] = Called(str(session.sid))
            try:
                await session.call_tool("wait", {"name": name, "seconds": 0.02})
                call.became = "ok"
            except ORSError as error:
                call.became = type(error).__name__
                return
