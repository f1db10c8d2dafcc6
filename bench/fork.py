"""How long `session.fork(16)` takes: `python -m bench.fork`."""

import asyncio
import statistics
import sys
import time

from bench.servers import running
from ors.client import AsyncORS, AsyncSession

FORKS = 16
ROUNDS = 200
WARM_ROUNDS = 20
MOST_MS = 5.0


async def _once(session: AsyncSession) -> float:
    began = time.perf_counter()
    forks = await session.fork(FORKS)
    took = (time.perf_counter() - began) * 1000
    await asyncio.gather(*(fork.close() for fork in forks))
    return took


async def _measure(url: str) -> list[float]:
    async with (
        AsyncORS(url) as client,
        client.environment("bench").session(split="train", index=0) as session,
    ):
        await session.call_tool("submit", {"answer": "4"})
        return [await _once(session) for _ in range(WARM_ROUNDS + ROUNDS)][WARM_ROUNDS:]


def main() -> int:
    """Measures, and says whether it is good enough."""
    with running("ours") as (server,):
        took = sorted(asyncio.run(_measure(server.url)))
    middle, late = statistics.median(took), took[len(took) * 9 // 10]
    text = f"median {middle:.2f} ms (at most {MOST_MS:g}), fastest {took[0]:.2f} ms, 90% {late:.2f} ms"
    print(f"fork({FORKS}), {ROUNDS} times: {text}")
    return 0 if middle <= MOST_MS else 1


if __name__ == "__main__":
    sys.exit(main())
