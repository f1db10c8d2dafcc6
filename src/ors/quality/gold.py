"""Examines the gold solution: the calls of `solve` must earn the maximum every time."""

import asyncio
import inspect
from typing import Any

from ors.quality.comparison import examine_apart, plays, rewards_alike
from ors.quality.subject import Action, EnvironmentUnderTest, Sample, Stuck, earned, reason, short

BOUND = (classmethod, staticmethod)
MOST_BESIDE = 2
"""Samples whose solution is also played at the same time as another session."""


async def examine(subject: EnvironmentUnderTest) -> None:
    """Plays the calls of the environment's `solve(task_spec)`."""
    solve = solution(subject)
    if solve is None:
        why = "the environment has no classmethod solve(task_spec)" if subject.cls else "needs a TARGET"
        subject.report.not_tried["gold solution"] = why
        return
    rewards = []
    for number, sample in enumerate(subject.samples):
        try:
            actions = await solved(solve, sample)
            rewards.append(await _earns(subject, sample, actions, beside=number < MOST_BESIDE))
        except Stuck:
            return
        except Exception as error:
            subject.report.found(
                "gold", f"solve() fails: {reason(error)}", "Correct solve().", where=str(sample)
            )
    if rewards:
        subject.report.figures["gold earns"] = sum(rewards) / len(rewards)


def solution(subject: EnvironmentUnderTest) -> Any:
    """The classmethod `solve` of the environment; None if it is something else, such as a tool."""
    defined = inspect.getattr_static(subject.cls, "solve", None)
    is_tool = any(tool.name == "solve" for tool in subject.tools)
    return getattr(subject.cls, "solve", None) if isinstance(defined, BOUND) and not is_tool else None


async def solved(solve: Any, sample: Sample) -> list[Action]:
    """The calls of the gold solution of a task."""
    calls = await asyncio.to_thread(solve, sample.task)
    calls = await calls if inspect.isawaitable(calls) else calls
    return [(str(tool), given) for tool, given in calls]


async def _earns(
    subject: EnvironmentUnderTest, sample: Sample, actions: list[Action], *, beside: bool
) -> float:
    alone = [await subject.play(sample, actions) for _ in range(plays(subject))]
    rewards_alike(subject, sample, actions, alone)
    total, wanted = min(map(earned, alone)), float(getattr(subject.cls, "max_reward", 1.0))
    if total < wanted - 1e-9:
        wrong = next((each.error for moves in alone for each in moves if each.error), "")
        subject.report.found(
            "gold",
            f"the gold solution earns {total:g} of {wanted:g}" + (f": {short(wrong)}" if wrong else ""),
            "Correct the grader or solve(). If the maximum is not 1, set the class attribute max_reward.",
            where=str(sample),
        )
    elif beside:
        await examine_apart(subject, sample, actions, alone, actions)
    return total
