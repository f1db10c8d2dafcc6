"""Runs on disk for tests of what shows them."""

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ors.client import ToolInvocation
from ors.rollouts import AgentMessage, EpisodeRecord, Failed, Message, Outcome, ToolMessage, Truncated
from ors.rollouts.records import RunInfo, RunWriter
from ors.types import Blocks, TextBlock
from tests.support.episode_records import episode

FAILURES: list[Outcome] = [
    Failed("environment", "call", "ToolFailed", "the tool raised ValueError"),
    Failed("infrastructure", "opening", "Unavailable", "no server answered"),
]


def said(text: str) -> Blocks:
    return [TextBlock(text=text)]


def called(blocks: Blocks, reward: float | None = 1.0, **more: Any) -> list[Message]:
    """A reply of the agent with one call, and its result."""
    call = ToolInvocation("submit", {"answer": 4}, "call_0")
    return [
        AgentMessage("I submit.", (call,)),
        ToolMessage("call_0", "submit", blocks, reward=reward, **more),
    ]


def talk(messages: Sequence[Message], **more: Any) -> EpisodeRecord:
    """An episode with these messages."""
    rewards = tuple(each.reward for each in messages if isinstance(each, ToolMessage))
    return episode(messages=tuple(messages), rewards=rewards, **more)


def many(count: int, samples: int = 1, skill: float = 0.5, seed: int = 1) -> Iterable[EpisodeRecord]:
    """Episodes with mixed outcomes and rewards."""
    chance = random.Random(seed)
    for index in range(count):
        for sample in range(samples):
            luck, steps = chance.random(), chance.randint(1, 9)
            reward = round(min(1.0, max(0.0, chance.gauss(skill, 0.25))), 2)
            outcome = chance.choice(FAILURES) if luck < 0.06 else Truncated("turns") if luck < 0.12 else None
            given = None if luck < 0.06 or luck > 0.97 else reward
            yield episode(index, given, sample=sample, steps=steps, outcome=outcome)


def tear(folder: Path, number: int) -> None:
    """Damages the messages of an episode; its beginning is whole, so that the index has it."""
    lines = (folder / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    head, mark, _ = lines[number].partition(b',"messages":[')
    lines[number] = head + mark + b'{"role":"user","blo]}\n'
    (folder / "episodes.jsonl").write_bytes(b"".join(lines))


def write_run(
    folder: Path, episodes: Iterable[EpisodeRecord], config: Mapping[str, object] | None = None
) -> Path:
    """Writes a run, or more of one."""
    with RunWriter.create(folder, RunInfo(config=config or {}), append=True) as writer:
        for one in episodes:
            writer.append(one)
    return folder
