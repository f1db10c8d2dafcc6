"""Runs for pictures of the inspector: word games, played by two programs on a real server."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

from examples.word_hunt import WORDS
from ors.client import ORS, Environment, Session, ToolInvocation
from ors.errors import ToolCallError
from ors.rollouts import (
    AgentMessage,
    EpisodeRecord,
    Message,
    Scored,
    SystemMessage,
    TaskRef,
    ToolMessage,
    Truncated,
    Usage,
    UserMessage,
)
from ors.rollouts.records import RunInfo, RunWriter
from ors.types import TextBlock, ToolOutput

KNOWN = [
    *WORDS["train"],
    *WORDS["test"],
    *["crane", "slate", "house", "light", "plant", "brave", "smoke", "ocean", "bread", "sugar"],
]
SYSTEM = "You play games with words. Call one tool at a time."
SAMPLES = 4
MOST_TURNS = 5
BEGAN = 1_767_000_000.0

Guesser = Callable[[list[tuple[str, str]], random.Random], str]
"""Chooses a word from the words and marks so far."""


def record_games(url: str, folder: Path) -> None:
    """Plays two runs on the server at `url`."""
    with ORS(url) as client:
        environment = client.environment("wordhunt")
        for name, guess in (("baseline", any_word), ("step-400", fitting_word)):
            with RunWriter.create(folder / name, RunInfo(created=BEGAN)) as writer:
                for record in games(environment, guess, f"local:{name}"):
                    writer.append(record)


def games(environment: Environment, guess: Guesser, agent: str) -> Iterator[EpisodeRecord]:
    """Plays every word several times."""
    chance = random.Random(agent)
    for split, words in WORDS.items():
        for index in range(len(words)):
            for sample in range(SAMPLES):
                yield game(environment, TaskRef("wordhunt", split, index), sample, guess, agent, chance)


def game(
    environment: Environment, task: TaskRef, sample: int, guess: Guesser, agent: str, chance: random.Random
) -> EpisodeRecord:
    """Plays one episode; the seconds of the model are made up."""
    assert task.split is not None
    with environment.session(split=task.split, index=task.index) as session:
        messages: list[Message] = [SystemMessage(SYSTEM), UserMessage(list(session.get_prompt()))]
        marks: list[tuple[str, str]] = []
        clock, finished = 0.0, False
        while not finished and len(marks) < MOST_TURNS:
            word = guess(marks, chance)
            thought = chance.uniform(0.6, 2.4)
            messages.append(reply(word, marks, thought))
            clock += thought
            result = answered(session, word, len(marks), clock, chance.uniform(0.004, 0.03))
            messages.append(result)
            clock += result.seconds
            marks.append((word, marks_of(result, word)))
            finished = result.finished
    results = [each for each in messages if isinstance(each, ToolMessage)]
    usages = [each.usage for each in messages if isinstance(each, AgentMessage)]
    return EpisodeRecord(
        id=UUID(int=chance.getrandbits(128)).hex,
        task=task,
        sample=sample,
        outcome=Scored() if finished else Truncated("turns"),
        reward=sum(each.reward or 0.0 for each in results),
        rewards=tuple(each.reward for each in results),
        messages=tuple(messages),
        usage=sum(usages, Usage()),
        agent=agent,
        started=BEGAN + chance.uniform(0, 600),
        seconds=clock,
    )


def reply(word: str, marks: list[tuple[str, str]], seconds: float) -> AgentMessage:
    """What a model would say with its guess."""
    told = ", ".join(f"{guessed} gave {mark}" for guessed, mark in marks)
    call = ToolInvocation("guess", {"word": word}, f"call_{len(marks)}")
    text = (
        f"I know that {told}. {word!r} fits."
        if marks
        else f"I begin with {word!r}, which has common letters."
    )
    usage = Usage(180 + 95 * len(marks), 30 + len(text) // 4)
    return AgentMessage(text, (call,), usage=usage, seconds=seconds)


def answered(session: Session, word: str, n: int, started: float, seconds: float) -> ToolMessage:
    """The result of a guess, also of one that is refused."""
    try:
        output = session.call_tool("guess", {"word": word})
        ok = True
    except ToolCallError as error:
        output = ToolOutput(blocks=[TextBlock(text=str(error))])
        ok = False
    return ToolMessage(
        f"call_{n}",
        "guess",
        output.blocks,
        ok,
        reward=output.reward,
        finished=output.finished,
        metadata=output.metadata,
        started=started,
        seconds=seconds,
    )


def marks_of(result: ToolMessage, word: str) -> str:
    """The marks of the last guess on the board."""
    text = "".join(block.text for block in result.blocks if isinstance(block, TextBlock))
    lines = [line for line in text.splitlines() if line.startswith(word)]
    return lines[-1].removeprefix(word).strip() if lines else "nothing"


def any_word(marks: list[tuple[str, str]], chance: random.Random) -> str:
    """Any word, even one that was guessed before."""
    return chance.choice(KNOWN)


def fitting_word(marks: list[tuple[str, str]], chance: random.Random) -> str:
    """A word that could have given these marks, most of the time."""
    fitting = [word for word in KNOWN if all(fits(word, *mark) for mark in marks)]
    return chance.choice(fitting or KNOWN) if chance.random() < 0.9 else chance.choice(KNOWN)


def fits(word: str, guessed: str, marks: str) -> bool:
    """Whether a word has the letters that the marks place, and is not the guess."""
    placed = marks.replace(" ", "")
    return word != guessed and all(word[n] == guessed[n] for n, mark in enumerate(placed[:5]) if mark == "G")
