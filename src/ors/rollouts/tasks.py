"""Tasks as callers give them, and their sessions."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from ors._masking import Mask, hidden, masked
from ors.client import AsyncEnvironment, AsyncSession, Task
from ors.errors import ORSError
from ors.rollouts.agent import TaskRef

GivenTask = TaskRef | Task | tuple[str, int]
"""A task: by a reference, whole, or as (split, index)."""


def task_of(session: AsyncSession) -> TaskRef:
    if session.task is None:
        return TaskRef(session.env.name, session.split, session.index)
    return TaskRef(session.task.environment_name or session.env.name, spec=session.task.task_spec)


def mask_of(session: AsyncSession) -> Mask | None:
    """Hides the secrets that a session was given; None if there are none."""
    return _mask(session._secrets)


def _mask(secrets: Mapping[str, str] | None) -> Mask | None:
    return partial(hidden, secrets=tuple(secrets.values())) if secrets else None


def task_ref(env: AsyncEnvironment, task: GivenTask) -> TaskRef:
    """The reference to a task of `env`.

    Raises:
        TypeError: it is not a task. ValueError: it is incomplete, or a task of another environment.
    """
    if isinstance(task, Task):
        return TaskRef(task.environment_name or env.name, spec=task.task_spec)
    if isinstance(task, tuple) and [type(part) for part in task] == [str, int]:
        return TaskRef(env.name, *task)
    if not isinstance(task, TaskRef):
        raise TypeError(f"A task is a TaskRef, a Task or (split, index), not {task!r:.200}")
    if task.spec is None and (task.split is None or task.index is None):
        raise ValueError(f"A task needs either a split and an index, or a spec: {task!r:.200}")
    if task.spec is None and task.environment != env.name:
        raise ValueError(f"The task is of the environment {task.environment!r}, not of {env.name!r}")
    return task


def session_for(env: AsyncEnvironment, task: TaskRef, secrets: Mapping[str, str] | None) -> AsyncSession:
    if task.spec is None or not task.is_whole:
        return env.session(secrets=secrets, split=task.split, index=task.index)
    return env.session(Task(task.environment, task.spec), secrets)


async def listed(env: AsyncEnvironment, task: TaskRef, secrets: Mapping[str, str] | None) -> TaskRef:
    """The task with what its server lists of it, without secrets; as it is if the server does not."""
    if task.spec is not None or task.split is None or task.index is None:
        return task
    try:
        found = await env.get_task(task.split, task.index)
    except ORSError:
        return task
    return replace(task, spec=masked(found.task_spec, _mask(secrets)))
