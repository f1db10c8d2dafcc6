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


async def _once(session: AsyncSession) -> tuple[float, float, float]:
    """Milliseconds of a ping, then of a fork; and the CPU time that the fork took this process."""
    start = time.perf_counter()
    await session.ping()
    began, cpu = time.perf_counter(), time.process_time()
    forks = await session.fork(FORKS)
    took, used = time.perf_counter() - began, time.process_time() - cpu
    await asyncio.gather(*(fork.close() for fork in forks))
    return (began - start) * 1000, took * 1000, used * 1000


async def _measure(url: str) -> list[tuple[float, float, float]]:
    async with (
        AsyncORS(url) as client,
        client.environment("bench").session(split="train", index=0) as session,
    ):
        await session.call_tool("submit", {"answer": "4"})
        return [await _once(session) for _ in range(WARM_ROUNDS + ROUNDS)][WARM_ROUNDS:]


def main() -> int:
    """Measures, and says whether it is good enough."""
    with running("ours") as (server,):
        pings, forks, used = (
            sorted(column) for column in zip(*asyncio.run(_measure(server.url)), strict=True)
        )
    middle, late = statistics.median(forks), forks[ROUNDS * 9 // 10]
    text = f"median {middle:.2f} ms (at most {MOST_MS:g}), fastest {forks[0]:.2f} ms, 90% {late:.2f} ms"
    print(f"fork({FORKS}), {ROUNDS} times: {text}; client CPU {statistics.median(used):.2f} ms")
    # Shows how busy the machine is: a ping does next to nothing.
    print(f"a ping before each: median {statistics.median(pings):.2f} ms")
    return 0 if middle <= MOST_MS else 1


if __name__ == "__main__":
    sys.exit(main())
