"""Calls under load while servers die, each accounted for."""

import asyncio
from collections import Counter
from pathlib import Path

from ors.client import AsyncORS
from ors.errors import ORSError

ALLOWED = {"ok", "SessionLost", "ToolFailed"}
"""What may become of a call whose server may die: all of it told, none of it left open."""


class Ledger:
    """Players of episodes, and what became of each of their calls."""

    def __init__(self, url: str, traces: Path, mark: str) -> None:
        self._url = url
        self._traces = traces
        self._mark = mark
        self._seen: dict[str, str] = {}
        self._stop = asyncio.Event()
        self._players: list[asyncio.Task[None]] = []

    def play(self, count: int) -> None:
        """So many players begin."""
        self._players = [asyncio.create_task(self._play(number)) for number in range(count)]

    async def more(self, count: int) -> None:
        """Waits for so many further calls that end well."""
        wanted = self._well() + count
        while self._well() < wanted:
            assert not any(player.done() for player in self._players)
            await asyncio.sleep(0.01)

    async def settle(self) -> None:
        """Ends the players, and holds what they saw against what ran."""
        self._stop.set()
        await asyncio.gather(*self._players)
        ran = Counter(name for name in self._traces.read_text().split() if name.startswith(self._mark))
        assert max(ran.values()) == 1, "a tool ran twice"
        assert {name for name, became in self._seen.items() if became == "ok"} <= ran.keys()
        assert set(self._seen.values()) <= ALLOWED, Counter(self._seen.values())

    def _well(self) -> int:
        return sum(became == "ok" for became in self._seen.values())

    async def _play(self, number: int) -> None:
        async with AsyncORS(self._url) as client:
            env = client.environment("yard")
            episode = 0
            while not self._stop.is_set():
                episode += 1
                name = ""
                try:
                    async with env.session(split="train", index=0) as session:
                        for call in range(4):
                            name = f"{self._mark}{number}.{episode}.{call}"
                            self._seen[name] = "open"
                            await session.call_tool("wait", {"name": name, "seconds": 0.02})
                            self._seen[name] = "ok"
                except ORSError as error:
                    if self._seen.get(name) == "open":
                        self._seen[name] = type(error).__name__
