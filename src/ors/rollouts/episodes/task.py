"""Tasks: as callers give them, their identities, and their sessions."""

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from ors._json import dumps, loads
from ors._masking import Mask, hidden, masked
from ors.client import AsyncEnvironment, AsyncSession, Task
from ors.errors import ORSError
from ors.rollouts.episodes.episode import TaskRef
from ors.types import JSONObject

GivenTask = TaskRef | Task | tuple[str, int]
"""A task: by a reference, whole, or as (split, index)."""


@dataclass(frozen=True, slots=True)
class TaskKey:
    """The identity of a task."""

    environment: str
    split: str | None
    index: int | None
    spec: str | None
    """Digest of a task that was given whole."""

    @property
    def label(self) -> str:
        """The task in a few characters, such as "test/3"."""
        return f"spec {self.spec}" if self.index is None else f"{self.split}/{self.index}"

    @property
    def order(self) -> tuple[str, str, int, str]:
        """The place of the task in a sorted list: by environment, split and index."""
        index = -1 if self.index is None else self.index
        return self.environment, self.split or "", index, self.spec or ""


def task_key(task: TaskRef) -> TaskKey:
    """The identity of a task, for sets and dictionaries."""
    digest = task_hash(task.spec) if task.spec is not None and task.is_whole else None
    split = None if task.split is None else sys.intern(task.split)
    return TaskKey(sys.intern(task.environment), split, task.index, digest)


def task_hash(spec: JSONObject) -> str:
    """The content of a task in 16 characters, which stay the same wherever the task is listed."""
    text = json.dumps(loads(dumps(spec)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


EpisodeKey = tuple[TaskKey, int]
"""Task and sample: which episode of a run it is."""


def episode_key(task: TaskRef, sample: int) -> EpisodeKey:
    """The key of an episode: the same task and sample have the same key in every run."""
    return task_key(task), sample


def task_of(session: AsyncSession) -> TaskRef:
    if session.task is None:
        return TaskRef(session.env.name, session.split, session.index)
    return TaskRef(session.task.environment_name or session.env.name, spec=session.task.task_spec)


def mask_of(session: AsyncSession) -> Mask | None:
    """Hides the secrets that a session was given; None if there are none."""
    return mask_secrets(session._secrets)


def mask_secrets(secrets: Mapping[str, str] | None) -> Mask | None:
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
        session = env.session(secrets=secrets, split=task.split, index=task.index)
    else:
        session = env.session(Task(task.environment, task.spec), secrets)
    session._forget_messages()  # the episode has its own
    return session


async def listed(env: AsyncEnvironment, task: TaskRef, secrets: Mapping[str, str] | None) -> TaskRef:
    """The task with what its server lists of it, without secrets; as it is if the server does not."""
    if task.spec is not None or task.split is None or task.index is None:
        return task
    try:
        found = await env.get_task(task.split, task.index)
    except ORSError:
        return task
    return replace(task, spec=masked(found.task_spec, mask_secrets(secrets)))
