"""Compares episodes: repeated alone, and at the same time as others."""

from collections.abc import Sequence

from ors.client import AsyncSession
from ors.errors import ORSError
from ors.quality.subject import Action, EnvironmentUnderTest, Move, Sample, reason

MOST_APART = 5
"""Episodes of a comparison with one companion, if it finds a difference and repeats both."""
FEWEST_PLAYS = 10
"""Finds a fault of every fifth episode with a chance of 90%, even with one sample."""


def plays(subject: EnvironmentUnderTest) -> int:
    return max(subject.plan.repeat, -(-FEWEST_PLAYS // max(1, len(subject.samples))))


def rewards_alike(
    subject: EnvironmentUnderTest, sample: Sample, actions: Sequence[Action], alone: Sequence[Sequence[Move]]
) -> bool:
    """Whether all plays of the same actions got the same rewards; reports a difference."""
    first = alone[0]
    for again in alone[1:]:
        for number, (one, other) in enumerate(zip(first, again, strict=False)):
            if _gain(one) != _gain(other):
                tool = actions[number][0]
                subject.report.found(
                    "not-deterministic",
                    f"{tool} rewards the same actions differently: {one.reward}, {other.reward}",
                    where=str(sample),
                )
                return False
    return all(len(again) == len(first) for again in alone)


async def examine_apart(
    subject: EnvironmentUnderTest,
    sample: Sample,
    actions: Sequence[Action],
    alone: Sequence[Sequence[Move]],
    others: Sequence[Action],
) -> None:
    """Plays the actions at the same time as a session of the same task, then of another task."""
    for companion in _companions(subject, sample):
        try:
            if not await _changes(subject, sample, actions, alone, companion, others):
                continue
            # Repeat both: the difference may have been random or due to time.
            again = await subject.play(sample, actions)
            if _comparable(again, alone) != _comparable(alone[0], alone):
                rewards_alike(subject, sample, actions, [alone[0], again])
            elif await _changes(subject, sample, actions, alone, companion, others):
                text = "a session changes the results of another session"
                subject.report.found("not-apart", text, where=str(sample))
        except ORSError as error:
            subject.report.found("episode", f"two concurrent episodes ended early: {reason(error)}")
            return


def _companions(subject: EnvironmentUnderTest, sample: Sample) -> list[Sample]:
    known = subject.samples
    following = known[(known.index(sample) + 1) % len(known)]
    return [sample] if following is sample else [sample, following]


async def _changes(
    subject: EnvironmentUnderTest,
    sample: Sample,
    actions: Sequence[Action],
    alone: Sequence[Sequence[Move]],
    companion: Sample,
    others: Sequence[Action],
) -> bool:
    """Whether a second session, which moves first in every turn, changes the results."""
    async with subject.opened(sample) as mine, subject.opened(companion) as theirs:
        beside = await _in_turns(subject, mine.session, actions, theirs.session, others)
    return _comparable(beside, alone) != _comparable(alone[0], alone)


async def _in_turns(
    subject: EnvironmentUnderTest,
    session: AsyncSession,
    actions: Sequence[Action],
    theirs: AsyncSession,
    others: Sequence[Action],
) -> list[Move]:
    beside: list[Move] = []
    for number, mine in enumerate(actions):
        if number < len(others):
            await subject.move(theirs, others[number])
        beside.append(await subject.move(session, mine))
        if beside[-1].finished:
            break
    return beside


def _gain(move: Move) -> tuple[float | None, bool]:
    return move.reward, move.finished


def _comparable(moves: Sequence[Move], alone: Sequence[Sequence[Move]]) -> list[tuple[object, ...]]:
    """Comparable results: rewards and ends, and texts if they never change when played alone."""
    texts = [[move.text for move in again] for again in alone]
    stable = len(texts) > 1 and all(text == texts[0] for text in texts)
    return [(*_gain(move), move.text if stable else "") for move in moves]
