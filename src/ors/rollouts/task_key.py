"""Identities of tasks and episodes, for sets and dictionaries."""

import hashlib
import json
import sys
from dataclasses import dataclass

from ors._json import dumps, loads
from ors.rollouts.agent import TaskRef


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
    digest = None
    if task.is_whole:
        text = json.dumps(loads(dumps(task.spec)), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    split = None if task.split is None else sys.intern(task.split)
    return TaskKey(sys.intern(task.environment), split, task.index, digest)


EpisodeKey = tuple[TaskKey, int]
"""Task and sample: which episode of a run it is."""


def episode_key(task: TaskRef, sample: int) -> EpisodeKey:
    """The key of an episode: the same task and sample have the same key in every run."""
    return task_key(task), sample
