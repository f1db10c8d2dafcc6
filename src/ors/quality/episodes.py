"""Examines episodes: they open, tell no answer, run without errors, alike and apart from each other."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ors import JSONObject, TextBlock, ToolSpec
from ors.errors import ORSError
from ors.quality.inputs import emptiest, needs_choice
from ors.quality.subject import Action, Move, Subject, answers, earned, move, named, reason
from ors.quality.tools import examine_tool

SURE_LENGTH = 4
"""An answer of fewer characters may stand in a prompt by chance."""


async def examine(subject: Subject) -> None:
    """All sampled tasks."""
    told: list[bool] = []
    nothing: list[float] = []
    by_chance: list[float] = []
    for split, task in list(subject.sampled()):
        tools = await _opens(subject, split, task, told)
        if tools is None:
            subject.tasks[split].remove(task)  # nothing more can be learnt from it
            continue
        nothing.append(await _does_nothing(subject, split, task, tools))
        by_chance.append(await _plays_by_chance(subject, split, task, tools))
    if len(told) > 2 and all(told):
        _found_answer(subject, "every sampled task")
    for name, rewards in (("do-nothing earns", nothing), ("random earns", by_chance)):
        if rewards:
            subject.report.figures[name] = sum(rewards) / len(rewards)


# ── Opening ──────────────────────────────────────────────────────────────────────────────────────


async def _opens(subject: Subject, split: str, task: JSONObject, told: list[bool]) -> list[ToolSpec] | None:
    report = subject.report
    try:
        async with subject.session(task) as session:
            prompt = await session.get_prompt()
            tools = await session.list_tools()
    except ORSError as error:
        report.found(
            "opens",
            f"an episode does not open: {reason(error)}",
            "Make __init__, setup() and get_prompt() work for every task.",
            where=named(split, task),
        )
        return None
    if not prompt or not any(not isinstance(block, TextBlock) or block.text.strip() for block in prompt):
        report.found(
            "prompt",
            "the prompt is empty",
            "Tell the agent in get_prompt() what to do.",
            where=named(split, task),
        )
    for tool in tools:
        if tool.name not in {known.name for known in subject.tools}:
            examine_tool(subject, tool)
    text = "\n".join(block.text for block in prompt if isinstance(block, TextBlock))
    wanted = [each for each in answers(task) if _stands_in(each, text) and not _is_choice(each, task)]
    told.append(bool(wanted))
    if any(len(answer.strip()) >= SURE_LENGTH for answer in wanted):
        _found_answer(subject, named(split, task))
    return tools


def _stands_in(answer: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(answer.strip())}(?!\w)", text, re.IGNORECASE) is not None


def _is_choice(answer: str, task: Any) -> bool:
    """Whether the task has it in a list of several, which a prompt may show."""
    if isinstance(task, Mapping):
        return any(_is_choice(answer, value) for value in task.values())
    return isinstance(task, list) and len(task) > 1 and answer in map(str, task)


def _found_answer(subject: Subject, where: str) -> None:
    subject.report.found(
        "answer-in-prompt",
        "the answer stands in the prompt",
        "Leave it out of get_prompt(); fine only where the prompt lists choices.",
        where=where,
    )


# ── Doing nothing ────────────────────────────────────────────────────────────────────────────────


async def _does_nothing(subject: Subject, split: str, task: JSONObject, tools: Sequence[ToolSpec]) -> float:
    """Calls every tool once with the emptiest input that it takes."""
    actions: list[Action] = [(tool.name, emptiest(tool.input_schema)) for tool in tools]
    chosen = any(needs_choice(tool.input_schema) for tool in tools)
    moves = await _played(subject, split, task, actions, tools)
    total = earned(moves)
    if total > 0 and not chosen:
        subject.report.found(
            "do-nothing",
            f"calls with empty inputs earn {total:g}",
            "Give reward for what was done, not for the call; check how empty answers are graded.",
            where=named(split, task),
        )
    return total


# ── Random inputs ────────────────────────────────────────────────────────────────────────────────


async def _plays_by_chance(
    subject: Subject, split: str, task: JSONObject, tools: Sequence[ToolSpec]
) -> float:
    actions = subject.random_actions(tools, subject.plan.seed)
    first = await _played(subject, split, task, actions, tools)
    alike = True
    for _ in range(subject.plan.repeat - 1):
        again = await _played(subject, split, task, actions, tools)
        alike = alike and _same(subject, split, task, actions, first, again)
    if alike:
        await _apart(subject, split, task, tools, first)
    return earned(first)


async def _played(
    subject: Subject, split: str, task: JSONObject, actions: Sequence[Action], tools: Sequence[ToolSpec]
) -> list[Move]:
    try:
        moves = await subject.play(task, actions)
    except ORSError as error:
        subject.report.found(
            "episode",
            f"an episode broke off: {reason(error)}",
            "See the server's log.",
            where=named(split, task),
        )
        return []
    schemas = {tool.name: tool.input_schema for tool in tools}
    for (tool, given), each in zip(actions, moves, strict=False):
        if each.failed:
            subject.report.found(
                "raises",
                f"{tool} raised for an input that fits its schema: {_short(each.error)}",
                f"Handle it, or refuse it with ToolError; the input was {_short(str(given))}.",
            )
        elif each.reason == "input_validation" and "pattern" not in str(schemas.get(tool)):
            subject.report.found(
                "refuses",
                f"{tool} refuses inputs that fit its schema: {_short(each.error)}",
                "Put into the schema what the tool asks for, so that models can know it.",
                level="warning",
            )
    return moves


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) < 160 else line[:159] + "…"


def _same(
    subject: Subject,
    split: str,
    task: JSONObject,
    actions: Sequence[Action],
    first: Sequence[Move],
    again: Sequence[Move],
) -> bool:
    for number, (one, other) in enumerate(zip(first, again, strict=False)):
        if (one.reward, one.finished) != (other.reward, other.finished):
            subject.report.found(
                "not-deterministic",
                f"{actions[number][0]} rewards the same actions differently: {one.reward}, {other.reward}",
                "Seed all chance from the task; let a grader's answer not depend on time.",
                where=named(split, task),
            )
            return False
    return len(first) == len(again)


async def _apart(
    subject: Subject, split: str, task: JSONObject, tools: Sequence[ToolSpec], alone: Sequence[Move]
) -> None:
    """Plays the same actions while another session plays others, turn by turn."""
    actions = subject.random_actions(tools, subject.plan.seed)
    others = subject.random_actions(tools, subject.plan.seed + 1)
    try:
        async with subject.session(task) as session, subject.session(task) as neighbour:
            beside: list[Move] = []
            for mine, theirs in zip(actions, others, strict=True):
                await move(neighbour, theirs)
                beside.append(await move(session, mine))
                if beside[-1].finished:
                    break
    except ORSError as error:
        subject.report.found(
            "episode", f"two episodes at once broke off: {reason(error)}", "See the server's log."
        )
        return
    if [(m.reward, m.finished) for m in beside] != [(m.reward, m.finished) for m in alone]:
        subject.report.found(
            "not-apart",
            "a session changes the rewards of another one",
            "Keep state in the instance (self.…), not in the class, in modules or in shared files.",
            where=named(split, task),
        )


# ── The gold solution ────────────────────────────────────────────────────────────────────────────


async def examine_gold(subject: Subject) -> None:
    """Plays what the environment's own `solve(task_spec)` says."""
    solve = getattr(subject.cls, "solve", None)
    if solve is None:
        why = "the environment has no classmethod solve(task_spec)" if subject.cls else "needs a TARGET"
        subject.report.not_tried["gold solution"] = why
        return
    wanted = float(getattr(subject.cls, "max_reward", 1.0))
    rewards = []
    for split, task in subject.sampled():
        try:
            calls = await asyncio.to_thread(solve, task)
            actions = [(str(tool), given) for tool, given in calls]
            moves = await subject.play(task, actions)
        except Exception as error:
            subject.report.found(
                "gold", f"solve() fails: {reason(error)}", "Correct solve().", where=named(split, task)
            )
            continue
        rewards.append(earned(moves))
        if rewards[-1] < wanted - 1e-9:
            wrong = next((each.error for each in moves if each.error), "")
            subject.report.found(
                "gold",
                f"the gold solution earns {rewards[-1]:g} of {wanted:g}"
                + (f": {_short(wrong)}" if wrong else ""),
                "Correct the grader or solve(); a class attribute max_reward tells another maximum than 1.",
                where=named(split, task),
            )
    if rewards:
        subject.report.figures["gold earns"] = sum(rewards) / len(rewards)
