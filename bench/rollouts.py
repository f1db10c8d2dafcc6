"""What the driver of rollouts costs: `python -m bench.rollouts [--rounds N] [--episodes N]`.

The same episodes are played in turns: by the client alone, and by `rollouts` with an agent that answers at
once. Compared is the CPU time of this process for a step, system calls included, which depends little on what
else the machine does. Then many more episodes are played, and the memory of this process is looked at.
"""

import argparse
import asyncio
import datetime
import os
import statistics
import sys
import time
from collections.abc import Sequence

from bench import machine
from bench.servers import running
from ors.client import AsyncEnvironment, AsyncORS, ToolInvocation
from ors.rollouts import AgentMessage, Conversation, Scored, rollouts
from ors.types import ToolSpec

AT_ONCE = 256
STEPS = 10
TASK = ("train", 1)
MOST = 1.3


class Instant:
    """Answers at once; its last answer of an episode is final."""

    def __init__(self) -> None:
        self._replies = [
            AgentMessage(calls=(ToolInvocation("submit", {"answer": "4", "final": final}, "c1"),))
            for final in (False, True)
        ]

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        # Each turn adds two messages to the prompt.
        return self._replies[len(conversation.messages) == 2 * STEPS - 1]


async def _bare(env: AsyncEnvironment, episodes: int) -> None:
    left = iter(range(episodes))

    async def play() -> None:
        for _ in left:
            async with env.session(split=TASK[0], index=TASK[1]) as session:
                await session.get_prompt()
                await session.list_tools()
                for step in range(STEPS):
                    output = await session.call_tool("submit", {"answer": "4", "final": step == STEPS - 1})
                assert output.finished

    await asyncio.gather(*(play() for _ in range(AT_ONCE)))


async def driven(env: AsyncEnvironment, episodes: int, at_once: int = AT_ONCE) -> None:
    """Plays episodes with the driver."""
    async for record in rollouts(env, [TASK] * episodes, Instant(), concurrency=at_once, reward="sum"):
        assert (record.outcome, record.reward) == (Scored(), STEPS)


async def compare(url: str, rounds: int, episodes: int) -> dict[str, list[float]]:
    """The CPU time of a step in microseconds, for each round."""
    ways = {"bare": _bare, "driven": driven}
    found: dict[str, list[float]] = {name: [] for name in ways}
    async with AsyncORS(url) as client:
        env = client.environment("bench")
        for number in range(rounds + 1):
            for name in ways if number % 2 else reversed(ways):
                began = time.process_time()
                await ways[name](env, episodes)
                found[name].append((time.process_time() - began) / (episodes * STEPS) * 1e6)
    return {name: each[1:] for name, each in found.items()}  # the first round warms up


async def _grown(url: str, episodes: int) -> tuple[float, float]:
    """Memory of this process in MB, after a tenth of the episodes and after all of them."""
    found = []
    async with AsyncORS(url) as client:
        for part in (episodes // 10, episodes - episodes // 10):
            await driven(client.environment("bench"), part)
            found.append(machine.resident_bytes(os.getpid()) / 2**20)
    return found[0], found[1]


def main() -> int:
    """Measures, and says whether it is good enough."""
    parser = argparse.ArgumentParser(prog="python -m bench.rollouts", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--episodes", type=int, default=10_000)
    given = parser.parse_args()
    with running("ours") as (server,), machine.pinned(machine.cores()[1]):
        found = asyncio.run(compare(server.url, given.rounds, 2 * AT_ONCE))
        before, after = asyncio.run(_grown(server.url, given.episodes))
    ratios = [driven / bare for driven, bare in zip(found["driven"], found["bare"], strict=True)]
    bare, driven = statistics.median(found["bare"]), statistics.median(found["driven"])
    cost = statistics.median(ratios)
    print(datetime.date.today().isoformat(), machine.described())
    print(f"{AT_ONCE} episodes at once, {STEPS} steps each, with their opening and closing")
    print(f"CPU a step: {bare:.0f} µs bare, {driven:.0f} with the driver; medians of {given.rounds} rounds")
    print(f"driver/bare of each round: {cost:.2f} ({min(ratios):.2f} to {max(ratios):.2f}; at most {MOST})")
    few = given.episodes // 10
    print(f"memory after {few:,} episodes: {before:.0f} MB; after {given.episodes:,}: {after:.0f} MB")
    return 0 if cost <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
