"""The clients of the soak: most behave, some cut, stop reading or vanish; each knows what it must get."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp

from bench.rawcall import RawCall, opened
from ors.client import AsyncORS, AsyncSession, Task
from ors.errors import ORSError

STOPPED_AT_ONCE = 4
"""Readers that hold a result of ten megabytes each."""
STOPPED_SECONDS = 40.0
"""Longer than the server waits for a reader that has stopped."""
BIG_KILOBYTES = 10 * 1024


class Ledger:
    """Every call by its number, with what came of it."""

    def __init__(self) -> None:
        self.calls = 0
        self.outcomes: Counter[str] = Counter()
        self.ran = 0
        self.sessions = 0
        self.wrong: list[str] = []

    def number(self, *, runs: bool = True) -> int:
        """A new call, which will run, or fail before its tool is reached."""
        self.calls += 1
        self.ran += runs
        return self.calls

    def came(self, outcome: str, expected: str) -> None:
        """A call is over."""
        self.outcomes[outcome] += 1
        if outcome != expected:
            self.wrong.append(f"{outcome!r} instead of {expected!r}")


class Crowd:
    """Clients of one server."""

    def __init__(self, url: str, client: AsyncORS, http: aiohttp.ClientSession, pace: float) -> None:
        self._url = url
        self._rough = client.environment("rough")
        self._http = http
        self._pace = pace
        self.ledger = Ledger()
        self.stop = asyncio.Event()
        self._roles: dict[Callable[[], Awaitable[None]], int] = {
            self._plain: 60,
            self._failing: 8,
            self._hanging: 4,
            self._stuck: 1,
            self._without_setup: 3,
            self._with_bad_teardown: 3,
            self._cutting: 12,
            self._vanishing: 8,
        }

    async def live(self, seed: int) -> None:
        """One client: episode after episode, until it is told to stop."""
        chosen = random.Random(seed)
        roles, weights = list(self._roles), list(self._roles.values())
        while not self.stop.is_set():
            await asyncio.sleep(chosen.uniform(0, 2 * self._pace))
            (role,) = chosen.choices(roles, weights)
            await self._play(role)

    async def stop_reading(self, number: int) -> None:
        """One who stops reading, again and again: so there are as many at any time, on a busy machine too."""
        await asyncio.sleep(number * STOPPED_SECONDS / STOPPED_AT_ONCE)
        while not self.stop.is_set():
            await self._play(self._stopped)

    async def _play(self, role: Callable[[], Awaitable[None]]) -> None:
        try:
            await role()
        except Exception as error:
            self.ledger.wrong.append(f"{role.__name__}: {type(error).__name__}: {error}")

    # ── Those who behave ─────────────────────────────────────────────────────────────────────────

    async def _plain(self) -> None:
        async with self._session() as session:
            await session.get_prompt()
            for name in ("echo", "echo_sync", "slow"):
                await self._call(session, name, "ok")

    async def _failing(self) -> None:
        async with self._session() as session:
            for name in ("fail", "fail_sync"):
                await self._call(session, name, "environment")
            await self._call(session, "echo", "ok")

    async def _hanging(self) -> None:
        async with self._session() as session:
            await self._call(session, "hang", "tool_timeout")
            await self._call(session, "echo", "ok")

    async def _stuck(self) -> None:
        async with self._session() as session:
            await self._call(session, "hang_sync", "tool_timeout")
            await self._call(session, "echo", "tool_timeout", runs=False)

    async def _without_setup(self) -> None:
        kind, reason = random.choice((("raise", "environment"), ("hang", "setup_timeout")))
        async with self._session({"setup": kind}) as session:
            await self._call(session, "echo", reason, runs=False)

    async def _with_bad_teardown(self) -> None:
        async with self._session({"teardown": random.choice(("raise", "hang"))}) as session:
            await self._call(session, "echo", "ok")

    @asynccontextmanager
    async def _session(self, task: dict[str, str] | None = None) -> AsyncIterator[AsyncSession]:
        self.ledger.sessions += 1
        async with self._rough.session(Task("rough", {**(task or {})})) as session:
            yield session

    async def _call(self, session: AsyncSession, name: str, expected: str, *, runs: bool = True) -> None:
        number = self.ledger.number(runs=runs)
        try:
            await session.call_tool(name, {"call": number})
            outcome = "ok"
        except ORSError as error:
            outcome = error.reason or f"{type(error).__name__}: {error}"
        self.ledger.came(outcome, expected)

    # ── Those who do not ─────────────────────────────────────────────────────────────────────────

    async def _cutting(self) -> None:
        call = await self._raw("slow")
        await call.begun_and_cut()
        await self._come_back(call)

    async def _vanishing(self) -> None:
        call = await self._raw("slow")
        await call.begun_and_cut()
        self.ledger.came("vanished", "vanished")

    async def _stopped(self) -> None:
        call = await self._raw("big", kilobytes=BIG_KILOBYTES)
        if not await call.begun_and_left_unread(STOPPED_SECONDS):
            self.ledger.wrong.append("a reader that stopped was sent everything")
        await self._come_back(call)

    async def _raw(self, name: str, **given: object) -> RawCall:
        self.ledger.sessions += 1
        sid = await opened(self._http, self._url)
        return RawCall(self._http, self._url, sid, name, {"call": self.ledger.number(), **given})

    async def _come_back(self, call: RawCall) -> None:
        found = await call.outcome()
        self.ledger.came("ok" if found.result is not None else found.error or "no end", "ok")
