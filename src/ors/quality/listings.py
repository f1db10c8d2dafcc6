"""Examines splits and tasks: they list, are the same twice, and keep answers to themselves."""

import inspect
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from ors import JSONObject
from ors.errors import BadRequest, ORSError
from ors.quality.subject import Subject, looks_like_answer, reason

MOST_LISTED = 5_000


async def examine(subject: Subject) -> None:
    """All splits of the environment."""
    report = subject.report
    try:
        splits = await subject.env.list_splits()
    except ORSError as error:
        report.found("splits", f"the splits cannot be listed: {reason(error)}", "Make list_splits() work.")
        return
    listed: dict[str, list[JSONObject]] = {}
    for split in splits:
        try:
            listed[split] = await _split(subject, split)
        except ORSError as error:
            report.found(
                "tasks",
                f"the tasks of {split!r} cannot be listed: {reason(error)}",
                "Make list_tasks() work.",
            )
    report.figures["tasks"] = {split: len(tasks) for split, tasks in listed.items()}
    _overlap(subject, listed)
    _answers(subject, listed)
    source = random.Random(subject.plan.seed)
    subject.tasks = {split: _sample(tasks, subject.plan.sample, source) for split, tasks in listed.items()}


async def _split(subject: Subject, split: str) -> list[JSONObject]:
    report = subject.report
    count = await subject.env.num_tasks(split)
    if not count:
        report.found(
            "empty", f"the split {split!r} has no tasks", "List at least one task, or leave the split out."
        )
        return []
    first, again = await _listing(subject, split, count), await _listing(subject, split, count)
    if subject.cls is not None:
        again = await _asked(subject, split) or again  # the server asks once and keeps what it heard
    if count <= MOST_LISTED and len(first) != count:
        report.found(
            "count",
            f"num_tasks says {count} for {split!r}, but {len(first)} tasks are listed",
            "Make num_tasks() and list_tasks() agree.",
        )
    if json.dumps(first, sort_keys=True) != json.dumps(again, sort_keys=True):
        report.found(
            "unstable",
            f"two listings of {split!r} differ",
            "Make list_tasks() give the same tasks in the same order: seed what is random, sort what is not.",
        )
    return first


async def _listing(subject: Subject, split: str, count: int) -> list[JSONObject]:
    if count > MOST_LISTED:
        tasks = await subject.env.get_task_range(split, 0, MOST_LISTED)
    else:
        try:
            tasks = await subject.env.list_tasks(split)
        except BadRequest:  # an environment with tasks by index only
            tasks = await subject.env.get_task_range(split)
    return [task.task_spec for task in tasks]


async def _asked(subject: Subject, split: str) -> list[JSONObject] | None:
    """The tasks from the author's own method, which no cache stands before."""
    assert subject.cls is not None
    try:
        listed: Any = subject.cls.list_tasks(split)
        listed = await listed if inspect.isawaitable(listed) else listed
        return list(listed)[:MOST_LISTED]
    except NotImplementedError:
        return None
    except Exception as error:
        subject.report.found(
            "unstable",
            f"list_tasks({split!r}) fails the second time: {reason(error)}",
            "Let list_tasks() be called more than once.",
        )
        return None


def _overlap(subject: Subject, listed: dict[str, list[JSONObject]]) -> None:
    keys = {split: {json.dumps(task, sort_keys=True) for task in tasks} for split, tasks in listed.items()}
    names = list(keys)
    for number, first in enumerate(names):
        for second in names[number + 1 :]:
            shared = len(keys[first] & keys[second])
            if shared:
                subject.report.found(
                    "overlap",
                    f"{shared} tasks are both in {first!r} and in {second!r}",
                    "Keep splits apart, or results on one say nothing about the other.",
                    level="warning",
                )


def _answers(subject: Subject, listed: dict[str, list[JSONObject]]) -> None:
    fields = {name for tasks in listed.values() for task in tasks[:100] for name in _names(task)}
    exposed = sorted(name for name in fields if looks_like_answer(name))
    if exposed:
        subject.report.found(
            "exposed",
            f"task listings show {', '.join(map(repr, exposed))}: whoever can list tasks can read it",
            "List an id instead, and look the answer up in setup().",
            level="warning",
        )


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _names(inner)


def _sample(tasks: Sequence[JSONObject], size: int, source: random.Random) -> list[JSONObject]:
    """The first, the last, and some between."""
    if len(tasks) <= size:
        return list(tasks)
    between = source.sample(range(1, len(tasks) - 1), max(0, size - 2))
    return [tasks[index] for index in sorted({0, *between, len(tasks) - 1})]
