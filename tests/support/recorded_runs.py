"""Runs on disk: as they are recorded, only that nobody has played them."""

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ors.client import ToolInvocation
from ors.rollouts import (
    AgentMessage,
    EpisodeRecord,
    Failed,
    Message,
    Outcome,
    Scored,
    SystemMessage,
    TaskRef,
    ToolMessage,
    Truncated,
    Unscored,
    Usage,
    UserMessage,
)
from ors.rollouts.records import RunInfo, RunWriter
from ors.types import Block, TextBlock

BEGAN = 1_770_000_000.0


def say(text: str) -> list[Block]:
    return [TextBlock(text=text)]


def call(
    n: int, reward: float | None = None, blocks: Sequence[Block] = (), *, finished: bool = False, **more: Any
) -> list[Message]:
    """A message of the agent with one call, and the result of that call."""
    invocation = ToolInvocation("guess", {"word": f"word-{n}"}, f"call-{n}")
    asked = AgentMessage(
        text=f"I try word {n}.", calls=(invocation,), usage=Usage(400 + 60 * n, 25), seconds=0.75
    )
    answered = ToolMessage(
        call=f"call-{n}",
        name="guess",
        blocks=list(blocks or say(f"Result {n}")),
        reward=reward,
        finished=finished,
        started=n * 1.0 - 0.25,
        seconds=0.2,
        **more,
    )
    return [asked, answered]


def episode(
    number: int,
    reward: float | None = 1.0,
    *,
    outcome: Outcome | None = None,
    calls: int = 1,
    sample: int = 0,
    messages: Sequence[Message] | None = None,
    **more: Any,
) -> EpisodeRecord:
    """One episode on the task `number`; its last call has the reward."""
    if messages is None:
        steps = [
            part
            for n in range(1, calls + 1)
            for part in call(n, reward if n == calls else None, finished=n == calls)
        ]
        prompt = [SystemMessage("Play the game."), UserMessage(say(f"Find word {number}."))]
        messages = [*prompt, *steps]
    results = [message for message in messages if isinstance(message, ToolMessage)]
    asked = [message.usage for message in messages if isinstance(message, AgentMessage)]
    return EpisodeRecord(
        id=f"{number:028x}{sample:04x}",
        task=more.pop("task", TaskRef("wordhunt", "train", number)),
        sample=sample,
        outcome=outcome or (Unscored() if reward is None else Scored()),
        reward=None if isinstance(outcome, Failed) else reward,
        rewards=tuple(result.reward for result in results),
        messages=tuple(messages),
        usage=sum(asked, Usage()),
        agent=more.pop("agent", "openai:small"),
        started=BEGAN + number,
        seconds=1.0 * len(results) + 0.1,
        **more,
    )


def many(count: int, samples: int = 1, skill: float = 0.5, seed: int = 1) -> Iterable[EpisodeRecord]:
    """Episodes with mixed outcomes and rewards."""
    chance = random.Random(seed)
    for number in range(count):
        for sample in range(samples):
            luck = chance.random()
            reward = round(min(1.0, max(0.0, chance.gauss(skill, 0.25))), 2)
            outcome: Outcome | None = None
            if luck < 0.04:
                outcome = Failed("environment", "call", "ToolFailed", "the tool raised ValueError")
            elif luck < 0.06:
                outcome = Failed("infrastructure", "opening", "Unavailable", "no server answered")
            elif luck < 0.12:
                outcome = Truncated("turns")
            given = None if 0.12 < luck < 0.15 else reward
            yield episode(number, given, outcome=outcome, calls=chance.randint(1, 9), sample=sample)


def write_run(folder: Path, episodes: Iterable[EpisodeRecord]) -> Path:
    """Writes a run."""
    with RunWriter.create(folder, RunInfo(created=BEGAN), append=True) as writer:
        for one in episodes:
            writer.append(one)
    return folder
