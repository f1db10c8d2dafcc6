"""Examines episodes: they open, hide the answer, give the same rewards again; gold solutions; forgeries."""

import asyncio
import contextlib
import inspect
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ors import Blocks, JSONObject, ToolSpec
from ors.errors import ORSError
from ors.quality.listings import examine_tool
from ors.quality.subject import (
    Action,
    EnvironmentUnderTest,
    Move,
    OpenedEpisode,
    Sample,
    Stuck,
    answers,
    earned,
    parted,
    reason,
    short,
)
from ors.schemas import emptiest, needs_choice, needs_example
from ors.types import text_and_images

FEWEST_PLAYS = 10
"""Finds a fault of every fifth episode with a chance of 90%, even with one sample."""


def plays(subject: EnvironmentUnderTest) -> int:
    return max(subject.plan.repeat, -(-FEWEST_PLAYS // max(1, len(subject.samples))))


@dataclass(frozen=True)
class Replays:
    """Actions on a task, and the moves of each time that they were played alone."""

    subject: EnvironmentUnderTest
    sample: Sample
    actions: Sequence[Action]
    alone: Sequence[Sequence[Move]]

    def alike(self) -> bool:
        """Whether all of them got the same rewards; reports a difference."""
        first = self.alone[0]
        for again in self.alone[1:]:
            for (tool, _), one, other in zip(self.actions, first, again, strict=False):
                if _gain(one) != _gain(other):
                    text = f"{tool} rewards the same actions differently: {one.reward}, {other.reward}"
                    self.subject.report.found("not-deterministic", text, where=str(self.sample))
                    return False
        return all(len(again) == len(first) for again in self.alone)

    async def examine_apart(self, others: Sequence[Action]) -> None:
        """Plays them at the same time as a session of the same task, then of another task."""
        report = self.subject.report
        for companion in self._companions():
            try:
                if not await self._changed_by(companion, others):
                    continue
                # Repeat both: the difference may have been random or due to time.
                again = await self.subject.play(self.sample, self.actions)
                if self._comparable(again) != self._comparable(self.alone[0]):
                    replace(self, alone=[self.alone[0], again]).alike()
                elif await self._changed_by(companion, others):
                    text = "a session changes the results of another session"
                    report.found("not-apart", text, where=str(self.sample))
            except ORSError as error:
                report.found("episode", f"two concurrent episodes ended early: {reason(error)}")
                return

    def _companions(self) -> list[Sample]:
        known = self.subject.samples
        following = known[(known.index(self.sample) + 1) % len(known)]
        return [self.sample] if following is self.sample else [self.sample, following]

    async def _changed_by(self, companion: Sample, others: Sequence[Action]) -> bool:
        """Whether a second session, which moves first in every turn, changes the results."""
        beside: list[Move] = []
        async with self.subject.opened(self.sample) as mine, self.subject.opened(companion) as theirs:
            for number, action in enumerate(self.actions):
                if number < len(others):
                    await self.subject.move(theirs.session, others[number])
                beside.append(await self.subject.move(mine.session, action))
                if beside[-1].finished:
                    break
        return self._comparable(beside) != self._comparable(self.alone[0])

    def _comparable(self, moves: Sequence[Move]) -> list[tuple[object, ...]]:
        """Rewards and ends, and texts if they never change when played alone."""
        texts = [[move.text for move in again] for again in self.alone]
        stable = len(texts) > 1 and all(text == texts[0] for text in texts)
        return [(*_gain(move), move.text if stable else "") for move in moves]


def _gain(move: Move) -> tuple[float | None, bool]:
    return move.reward, move.finished


ANSWER_SHOWN = "the answer is in the prompt"
SURE_LENGTH = 4
"""A shorter answer may be in a prompt by chance."""


async def examine(subject: EnvironmentUnderTest) -> None:
    leaks: list[bool] = []
    earnings: dict[str, list[float]] = {"do-nothing earns": [], "random earns": []}
    tried = [(sample, await _opens(subject, sample, leaks)) for sample in subject.samples]
    opened = [(sample, tools) for sample, tools in tried if tools is not None]
    subject.samples = [sample for sample, _ in opened]
    for sample, tools in opened:
        earnings["do-nothing earns"].append(await _does_nothing(subject, sample, tools))
        earnings["random earns"].append(await _plays_by_chance(subject, sample, tools))
    if len(leaks) > 2 and all(leaks):
        subject.report.found("answer-in-prompt", ANSWER_SHOWN, where="every sampled task")
    _always_pays(subject, earnings["do-nothing earns"])
    for name, rewards in earnings.items():
        if rewards:
            subject.report.figures[name] = sum(rewards) / len(rewards)


# ── Opening ──────────────────────────────────────────────────────────────────────────────────────


async def _opens(subject: EnvironmentUnderTest, sample: Sample, leaks: list[bool]) -> list[ToolSpec] | None:
    report = subject.report
    try:
        async with subject.opened(sample) as episode:
            prompt, tools = episode.prompt, episode.tools
    except ORSError as error:
        text, source = f"an episode cannot be opened: {reason(error)}", parted(str(error))[1]
        report.found("opens", text, where=str(sample), source=source)
        return None
    text, images = text_and_images(prompt)
    if not text.strip() and not images:
        report.found("prompt", "the prompt is empty", where=str(sample))
    for tool in tools:
        if tool.name not in {known.name for known in subject.tools}:
            examine_tool(subject, tool)
    _looks_for_answers(subject, sample, prompt, leaks)
    return tools


def _looks_for_answers(
    subject: EnvironmentUnderTest, sample: Sample, prompt: Blocks, leaks: list[bool]
) -> None:
    text, _ = text_and_images(prompt)
    task = sample.task
    wanted = [each for each in answers(task) if _stands_in(each, text) and not _is_choice(each, task)]
    leaks.append(bool(wanted))
    if any(len(answer.strip()) >= SURE_LENGTH for answer in wanted):
        subject.report.found("answer-in-prompt", ANSWER_SHOWN, where=str(sample))


def _stands_in(answer: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(answer.strip())}(?!\w)", text, re.IGNORECASE) is not None


def _is_choice(answer: str, task: Any) -> bool:
    """Whether the answer is in a list of choices, which a prompt may show."""
    if isinstance(task, Mapping):
        return any(_is_choice(answer, value) for value in task.values())
    return isinstance(task, list) and len(task) > 1 and answer in map(str, task)


# ── Doing nothing ────────────────────────────────────────────────────────────────────────────────


async def _does_nothing(subject: EnvironmentUnderTest, sample: Sample, tools: Sequence[ToolSpec]) -> float:
    """Calls every tool once with the emptiest input that its schema allows."""
    actions: list[Action] = [(tool.name, emptiest(tool.input_schema)) for tool in tools]
    chosen = any(needs_choice(tool.input_schema) for tool in tools)
    total = earned(await _played(subject, sample, actions, tools))
    if total > 0 and not chosen:
        subject.report.found("do-nothing", f"calls with empty inputs earn {total:g}", where=str(sample))
    return total


def _always_pays(subject: EnvironmentUnderTest, rewards: Sequence[float]) -> None:
    """Reports a first choice that earns reward on every task, which is no chance."""
    found = any(finding.id == "do-nothing" for finding in subject.report.findings)
    if len(rewards) > 2 and min(rewards) > 0 and not found:
        text = f"the same first choice earns {sum(rewards) / len(rewards):.2g} on every sampled task"
        fix = "Check that the reward depends on the choice."
        subject.report.found("do-nothing", text, fix=fix, level="warning")


# ── Random inputs ────────────────────────────────────────────────────────────────────────────────


async def _plays_by_chance(subject: EnvironmentUnderTest, sample: Sample, tools: Sequence[ToolSpec]) -> float:
    actions = subject.random_actions(tools, subject.plan.seed)
    alone = [await _played(subject, sample, actions, tools) for _ in range(plays(subject))]
    replays = Replays(subject, sample, actions, alone)
    if replays.alike():
        await replays.examine_apart(subject.random_actions(tools, subject.plan.seed + 1))
    return earned(alone[0])


async def _played(
    subject: EnvironmentUnderTest, sample: Sample, actions: Sequence[Action], tools: Sequence[ToolSpec]
) -> list[Move]:
    moves = await subject.try_play(sample, actions)
    schemas = {tool.name: tool.input_schema for tool in tools}
    for (tool, given), each in zip(actions, moves, strict=False):
        _judge(subject, tool, given, each, schemas.get(tool))
    return moves


def _judge(
    subject: EnvironmentUnderTest, tool: str, given: JSONObject, made: Move, schema: JSONObject | None
) -> None:
    fits = not needs_example(schema)
    if made.failed and fits:
        message, source = parted(made.error)
        text = f"{tool} raised for an input that fits its schema: {short(message)}"
        fix = f"Fix the tool, or refuse this input with ToolError: {short(str(given))}."
        subject.report.found("raises", text, fix=fix, source=source)
    elif made.reason == "not_found":
        text = f"{tool} is listed, but a call to it is refused: {short(made.error)}"
        subject.report.found("not-there", text)
    elif made.reason == "input_validation" and fits:
        words = f"{tool} refuses inputs that fit its schema"
        if any(finding.text.startswith(words) for finding in subject.report.findings):
            return  # already reported, for another input
        subject.report.found("refuses", f"{words}: {short(made.error)}")


# ── Solutions ────────────────────────────────────────────────────────────────────────────────────

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
            text = f"solve() fails: {reason(error)}"
            subject.report.found("gold", text, fix="Correct solve().", where=str(sample))
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
        text = f"the gold solution earns {total:g} of {wanted:g}" + (f": {short(wrong)}" if wrong else "")
        subject.report.found("gold", text, where=str(sample))
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
