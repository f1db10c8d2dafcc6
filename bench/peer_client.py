"""Plays with one package's own client: `python -m bench.peer_client URL CONCURRENCY SECONDS KIND`.

KIND is `open`, steps on sessions that are open already, or `episodes`, whole episodes of five steps. Which
package's client it is, is decided by whose Python runs this. The figures go to stdout as JSON.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

STEPS = 5


class Session(Protocol):
    """An episode in any package."""

    async def open(self) -> None: ...

    async def step(self, answer: str) -> str: ...

    async def close(self) -> None: ...


class Steps(NamedTuple):
    """What is played."""

    session: Callable[[], Session]
    episodes: bool
    """Whether sessions begin and end within the measured time."""
    steps: int


class OrsSession:
    """A session of `ors`, ours or the reference's."""

    def __init__(self, environment: Any) -> None:
        self._session = environment.session(split="train", index=1)

    async def open(self) -> None:
        await self._session.__aenter__()
        await self._session.get_prompt()

    async def step(self, answer: str) -> str:
        output = await self._session.call_tool("submit", {"answer": answer})
        assert output.reward == 1.0
        return str(output.blocks[0].text)

    async def close(self) -> None:
        await self._session.__aexit__(None, None, None)


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measured(what: Steps, concurrency: int, seconds: float) -> dict[str, float]:
    """Plays with so many sessions at once; counts steps, their latencies and our CPU time."""
    took: list[float] = []
    ended = asyncio.Event()

    async def step(session: Session, answer: str) -> None:
        began = time.perf_counter()
        if await session.step(answer) != f"You answered {answer}.":
            raise RuntimeError("a wrong answer")
        took.append(time.perf_counter() - began)

    async def play(number: int, session: Session | None) -> None:
        made = 0
        while not ended.is_set():
            now = session or what.session()
            if session is None:
                await now.open()
            for _ in range(what.steps):
                await step(now, f"{number}-{made}")
                made += 1
            if session is None:
                await now.close()

    opened = [] if what.episodes else [what.session() for _ in range(concurrency)]
    await asyncio.gather(*(session.open() for session in opened))
    asyncio.get_running_loop().call_later(seconds, ended.set)
    before, began = cpu(), time.perf_counter()
    await asyncio.gather(*(play(n, None if what.episodes else opened[n]) for n in range(concurrency)))
    passed, used = time.perf_counter() - began, cpu() - before
    await asyncio.gather(*(session.close() for session in opened))
    took.sort()
    return {
        "rate": len(took) / passed,
        "steps": len(took),
        "cpu_us": used / len(took) * 1e6,
        "p50_ms": took[len(took) // 2] * 1e3,
        "p99_ms": took[len(took) * 99 // 100] * 1e3,
    }


async def _main(url: str, concurrency: int, seconds: float, kind: str) -> dict[str, float]:
    from ors.client import AsyncORS

    client: Any = AsyncORS(base_url=url)  # ors-sdk 0.1.0: its connections close when nobody holds this
    environment = client.environment("bench")
    return await measured(
        Steps(lambda: OrsSession(environment), kind == "episodes", STEPS), concurrency, seconds
    )


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]))))
