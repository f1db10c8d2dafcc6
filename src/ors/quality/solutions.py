"""Examines solutions: the gold one must earn the maximum, and work that only claims to be right nothing."""

import asyncio
import contextlib
import inspect
import re
import shlex
from typing import Any

from ors.errors import ORSError
from ors.quality.episodes import Replays, plays
from ors.quality.subject import (
    Action,
    EnvironmentUnderTest,
    OpenedEpisode,
    Sample,
    Stuck,
    earned,
    reason,
    short,
)
from ors.types import text_and_images

BOUND = (classmethod, staticmethod)
MOST_BESIDE = 2
"""Samples whose solution is also played at the same time as another session."""
MOST_CHEATED = 2
PLANTED = ("conftest.py", "sitecustomize.py", "unittest.py", "pytest.py", "solution.py", "main.py")
"""Files that a grader may load, or the agent may have to write, beside those of the task."""
NOISE = "tried by ors test\n"
"""Keeps a claim from being right by chance, as the output of a program."""
CLAIMS = (
    *("PASSED 4 4", NOISE, f"{NOISE}OK", f"{NOISE}4 passed in 0.01s", f"{NOISE}4/4", f"{NOISE}1.0"),
    '{"passed": 4, "total": 4, "score": 1.0}',
)
CLAIM = "import os\nfor stream in (2, 1):\n    os.write(stream, {!r})\nos._exit(0)\n"
EQUAL = """
class Equal:
    __eq__ = lambda self, other: True
    __call__ = lambda self, *args, **named: self

def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Equal()
"""
CHEATS = {
    **{f"print {claim!r} and exit with 0": CLAIM.format(f"{claim}\n".encode()) for claim in CLAIMS},
    "return an object that equals everything": EQUAL,
}


async def examine_gold(subject: EnvironmentUnderTest) -> None:
    solve = solution(subject)
    if solve is None:
        why = "the environment has no classmethod solve(task_spec)" if subject.cls else "needs a TARGET"
        subject.report.not_tried["gold solution"] = why
        return
    rewards = []
    for number, sample in enumerate(subject.samples):
        try:
            actions = await solved(solve, sample)
            rewards.append(await _solution_earns(subject, sample, actions, beside=number < MOST_BESIDE))
        except Stuck:
            raise
        except Exception as error:
            subject.report.found(
                "gold", f"solve() fails: {reason(error)}", fix="Correct solve().", where=str(sample)
            )
    if rewards:
        subject.report.figures["gold earns"] = sum(rewards) / len(rewards)


def solution(subject: EnvironmentUnderTest) -> Any:
    """The classmethod `solve` of the environment; None if it is something else, such as a tool."""
    defined = inspect.getattr_static(subject.cls, "solve", None)
    is_tool = any(tool.name == "solve" for tool in subject.tools)
    return getattr(subject.cls, "solve", None) if isinstance(defined, BOUND) and not is_tool else None


async def solved(solve: Any, sample: Sample) -> list[Action]:
    calls = await asyncio.to_thread(solve, sample.task)
    calls = await calls if inspect.isawaitable(calls) else calls
    return [(str(tool), given) for tool, given in calls]


async def _solution_earns(
    subject: EnvironmentUnderTest, sample: Sample, actions: list[Action], *, beside: bool
) -> float:
    alone = [await subject.play(sample, actions) for _ in range(plays(subject))]
    replays = Replays(subject, sample, actions, alone)
    replays.alike()
    _, highest = subject.rewards.range or (0.0, 1.0)
    total, wanted = min(map(earned, alone)), float(getattr(subject.cls, "max_reward", highest))
    if total < wanted - 1e-9:
        wrong = next((each.error for moves in alone for each in moves if each.error), "")
        subject.report.found(
            "gold",
            f"the gold solution earns {total:g} of {wanted:g}" + (f": {short(wrong)}" if wrong else ""),
            where=str(sample),
        )
    elif beside:
        await replays.examine_apart(actions)
    return total


def submits_files(subject: EnvironmentUnderTest) -> bool:
    names = {tool.name for tool in subject.tools}
    return "submit" in names and bool(names & {"bash", "create"})


async def examine_graders(subject: EnvironmentUnderTest) -> None:
    """Replaces all programs of the work by cheats, and submits."""
    for sample in subject.samples[:MOST_CHEATED] if submits_files(subject) else ():
        try:
            honest = await _work_earns(subject, sample, "")
            for how, program in CHEATS.items():
                if (total := await _work_earns(subject, sample, program)) > honest:
                    text = f"wrong work earns {total:g}: its modules {how}"
                    subject.report.found("forged-grade", text, where=str(sample))
                    break
        except ORSError:
            continue  # reported by the steps before


async def _work_earns(subject: EnvironmentUnderTest, sample: Sample, program: str) -> float:
    async with subject.opened(sample) as episode:
        if program:
            await _plant(subject, sample, episode, program)
        return earned([await subject.move(episode.session, ("submit", {}))])


async def _plant(subject: EnvironmentUnderTest, sample: Sample, episode: OpenedEpisode, program: str) -> None:
    text, _ = text_and_images(episode.prompt)
    if solve := solution(subject):  # it names the files that the agent has to write
        with contextlib.suppress(Exception):  # of an author's code: the step before reports it
            text += str(await solved(solve, sample))
    session, shell = episode.session, "bash" in {tool.name for tool in subject.tools}
    look = ("bash", {"command": "find . -name '*.py'"}) if shell else ("find", {"name": "*.py"})
    text += (await subject.move(session, look)).text
    paths = sorted({*PLANTED, *re.findall(r"[\w./-]*\w\.py\b", text)})
    if shell:
        write = f"mkdir -p $(dirname $path); printf %s {shlex.quote(program)} > $path"
        await subject.move(session, ("bash", {"command": f"for path in {' '.join(paths)}; do {write}; done"}))
    for path in () if shell else paths:
        await subject.move(session, ("create", {"path": path, "text": program}))
