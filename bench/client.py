"""One client of the comparison, as a process: `python -m bench.client URL CONCURRENCY SECONDS`.

Which package's client it is, is decided by whose Python runs this. The figures go to stdout as JSON.
"""

import asyncio
import json
import resource
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

from ors.client import AsyncORS


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _call_until(session: Any, name: int, deadline: float) -> int:
    made = 0
    while time.perf_counter() < deadline:
        answer = f"{name}-{made}"
        output = await session.call_tool("submit", {"answer": answer})
        if output.blocks[0].text != f"You answered {answer}." or output.reward != 1.0:
            raise RuntimeError(f"wrong answer: {output!r}")
        made += 1
    return made


async def measure(url: str, concurrency: int, seconds: float) -> dict[str, float]:
    """Opens so many sessions, and makes one call after the other in each."""
    client: Any = AsyncORS(base_url=url)  # ors-sdk 0.1.0: its connections close when nobody holds this
    environment = client.environment("bench")
    async with AsyncExitStack() as stack:
        opening = [environment.session(split="train", index=1) for _ in range(concurrency)]
        sessions = await asyncio.gather(*map(stack.enter_async_context, opening))
        await asyncio.gather(*(session.call_tool("submit", {"answer": "warm"}) for session in sessions))
        cpu, began = _cpu(), time.perf_counter()
        deadline = began + seconds
        made = await asyncio.gather(*(_call_until(s, name, deadline) for name, s in enumerate(sessions)))
        return {"calls": sum(made), "seconds": time.perf_counter() - began, "cpu": _cpu() - cpu}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))))
