"""Examines what an environment lists: splits and tasks, which must be stable and hide answers, and tools."""

import asyncio
import inspect
import json
import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import combinations, islice
from typing import Any, get_args

from ors import JSONObject, ToolSpec
from ors.client import AsyncEnvironment, Provider, convert_tools
from ors.errors import BadRequest, ORSError
from ors.quality.subject import EnvironmentUnderTest, Sample, looks_like_answer, reason
from ors.schemas import problems

MOST_LISTED = 5_000
PROVIDERS = get_args(Provider)
AGREE = "All servers must agree on every index: sort items of a set or a folder, use a fixed seed."


async def examine(subject: EnvironmentUnderTest) -> None:
    report = subject.report
    try:
        splits = await subject.within("list_splits()", subject.env.list_splits())
    except ORSError as error:
        report.found("splits", f"the splits cannot be listed: {reason(error)}")
        return
    counts: dict[str, int] = {}
    listed: dict[str, list[JSONObject]] = {}
    whole: dict[str, list[JSONObject]] = {}
    for split in splits:
        try:
            work = subject.env.num_tasks(split)
            counts[split] = await subject.within(f"counting the tasks of {split!r}", work)
            listed[split], whole[split] = await _split(subject, split, counts[split])
        except ORSError as error:
            report.found("tasks", f"the tasks of {split!r} cannot be listed: {reason(error)}")
    if counts:
        report.figures["tasks"] = counts
    _overlap(subject, whole)
    _answers(subject, listed)
    source = random.Random(subject.plan.seed)
    subject.samples = [
        Sample(split, index, tasks[index])
        for split, tasks in whole.items()
        for index in _chosen(len(tasks), subject.plan.sample, source)
    ]


async def _split(
    subject: EnvironmentUnderTest, split: str, count: int
) -> tuple[list[JSONObject], list[JSONObject]]:
    report = subject.report
    if not count:
        report.found("empty", f"the split {split!r} has no tasks")
        return [], []
    first = await subject.within(f"listing {split!r}", _listing(subject.env, split, count))
    if count <= MOST_LISTED and len(first) != count:
        report.found("count", f"num_tasks says {count} for {split!r}, but {len(first)} tasks are listed")
    again = await subject.within(f"listing {split!r}", _listing(subject.env, split, count))
    _compare(subject, split, first, again)
    whole = await _whole(subject, split, first)
    await _compare_elsewhere(subject, split, first, count)
    return first, whole


async def _whole(subject: EnvironmentUnderTest, split: str, first: list[JSONObject]) -> list[JSONObject]:
    """Tasks with all fields, from the author's own method; no cache can hide a change there."""
    asked = await _asked(subject, split)
    if asked is None:
        return first
    try:
        plain: list[JSONObject] = json.loads(json.dumps(asked))
    except (TypeError, ValueError):
        # Models, dates or numpy numbers: the server encodes them its own way, so compare two direct calls.
        if repr(asked) != repr(await _asked(subject, split)):
            subject.report.found("unstable", f"two listings of {split!r} differ")
        return first
    shown = {key for task in first for key in task}  # without private fields
    _compare(subject, split, first, [{k: v for k, v in task.items() if k in shown} for task in plain])
    return plain if len(plain) == len(first) else first


def _compare(
    subject: EnvironmentUnderTest,
    split: str,
    first: list[JSONObject],
    again: list[JSONObject],
    text: str = "two listings of {!r} differ",
    fix: str = "",
) -> None:
    if _keys(first) != _keys(again):
        subject.report.found("unstable", text.format(split), fix=fix)


async def _compare_elsewhere(
    subject: EnvironmentUnderTest, split: str, first: list[JSONObject], count: int
) -> None:
    if subject.elsewhere is None:
        return
    other: list[JSONObject] = []
    with suppress(ORSError):
        other = await subject.within(f"listing {split!r}", _listing(subject.elsewhere, split, count))
    _compare(subject, split, first, other, "another process lists {!r} differently", AGREE)


def _keys(tasks: list[JSONObject]) -> list[str]:
    return [json.dumps(task, sort_keys=True) for task in tasks]


async def _listing(env: AsyncEnvironment, split: str, count: int) -> list[JSONObject]:
    if count > MOST_LISTED:
        tasks = await env.get_task_range(split, 0, MOST_LISTED)
    else:
        try:
            tasks = await env.list_tasks(split)
        except BadRequest:  # an environment with tasks by index only
            tasks = await env.get_task_range(split)
    return [task.task_spec for task in tasks]


async def _asked(subject: EnvironmentUnderTest, split: str) -> list[Any] | None:
    """Calls the author's own list_tasks; None if that is not possible."""
    if subject.cls is None:
        return None
    try:
        listed: Any = await asyncio.to_thread(subject.cls.list_tasks, split)
        listed = await listed if inspect.isawaitable(listed) else listed
        return list(islice(listed, MOST_LISTED))
    except NotImplementedError:
        return None
    except Exception as error:
        text = f"list_tasks({split!r}) fails the second time: {reason(error)}"
        subject.report.found("unstable", text, fix="Make list_tasks() work more than once.")
        return None


def _overlap(subject: EnvironmentUnderTest, listed: dict[str, list[JSONObject]]) -> None:
    keys = {split: set(_keys(tasks)) for split, tasks in listed.items()}
    for first, second in combinations(keys, 2):
        if shared := len(keys[first] & keys[second]):
            subject.report.found("overlap", f"{shared} tasks are in both {first!r} and {second!r}")


def _answers(subject: EnvironmentUnderTest, listed: dict[str, list[JSONObject]]) -> None:
    fields = {name for tasks in listed.values() for task in tasks[:100] for name in _names(task)}
    if exposed := ", ".join(repr(name) for name in sorted(fields) if looks_like_answer(name)):
        subject.report.found("exposed", f"task listings show {exposed} to anyone who can list tasks")


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _names(inner)


def _chosen(count: int, size: int, source: random.Random) -> list[int]:
    if count <= size:
        return list(range(count))
    between = source.sample(range(1, count - 1), max(0, size - 2))
    return sorted({0, *between, count - 1})


async def examine_tools(subject: EnvironmentUnderTest) -> None:
    """Examines the tools that all tasks share, including the terminal one."""
    try:
        subject.tools = await subject.env.list_tools(terminal=True)
    except ORSError as error:
        subject.report.found("tools", f"tools cannot be listed: {reason(error)}")
        return
    subject.report.figures["tools"] = len(subject.tools)
    for tool in subject.tools:
        examine_tool(subject, tool)


def examine_tool(subject: EnvironmentUnderTest, tool: ToolSpec) -> None:
    report = subject.report
    wrong = problems(tool.input_schema)
    for problem in wrong[:3]:
        report.found("schema", f"the input schema of {tool.name!r}: {problem}")
    if not tool.description.strip():
        report.found("description", f"the tool {tool.name!r} has no description")
    for provider in () if wrong else PROVIDERS:
        try:
            convert_tools([tool], provider)
        except Exception as error:
            text = f"the tool {tool.name!r} cannot be converted for {provider}: {reason(error)}"
            report.found("format", text)
