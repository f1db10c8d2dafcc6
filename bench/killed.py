"""A server killed under a hundred calls, and how soon each client knows: `python -m bench.killed`."""

import asyncio
import os
import signal
import sys
import time

from bench.watched import Watched, watched
from ors.client import AsyncORS, Task
from ors.errors import ORSError

CALLS = 100
AWAY_SECONDS = (0.0, 1.0, 3.0, 8.0)
MOST_SECONDS = 2.0


async def _told_after(server: Watched, away: float) -> tuple[float, set[str]]:
    """Seconds from the restart until the last client knows, and what they know."""
    async with AsyncORS(server.url) as client:
        rough = client.environment("rough")
        sessions = [rough.session(Task("rough", {})) for _ in range(CALLS)]
        for session in sessions:
            await session.start()
        begun = [asyncio.Event() for _ in sessions]
        calls = [
            asyncio.create_task(session.call_tool("stay", {}, on_task_id=lambda _, e=event: e.set()))  # type: ignore[misc]
            for session, event in zip(sessions, begun, strict=True)
        ]
        await asyncio.gather(*(event.wait() for event in begun))
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        await asyncio.sleep(away)
        with watched({}, port=server.port):
            there = time.perf_counter()
            errors = await asyncio.gather(*calls, return_exceptions=True)
            took = time.perf_counter() - there
    return took, {type(error).__name__ for error in errors if isinstance(error, ORSError)}


def main() -> int:
    """Measures, and says whether it is good enough."""
    slowest = 0.0
    for away in AWAY_SECONDS:
        with watched({}) as server:
            took, told = asyncio.run(_told_after(server, away))
        print(
            f"away for {away:g} s and its start: {CALLS} clients know after {took:.2f} s ({', '.join(told)})"
        )
        slowest = max(slowest, took)
    print(f"slowest: {slowest:.2f} s (at most {MOST_SECONDS:g})")
    return 0 if slowest < MOST_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
