"""TaskSampler: an endless draw of tasks, for training."""

import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Literal, Self

from ors.client import Task
from ors.rollouts.episodes.episode import EpisodeRecord, GivenTask, TaskRef, task_hash, task_key
from ors.rollouts.episodes.outcome import Failed

Weights = Literal["uniform", "variance"]
_SLOWEST_CHANGE = 0.05
_LEAST_WEIGHT = 0.1


@dataclass(slots=True)
class _Rewards:
    """Mean and variance of the rewards of one task. Old ones fade: the agent that earned them has changed."""

    count: int = 0
    mean: float = 0.0
    variance: float = 0.0

    def add(self, reward: float) -> None:
        self.count += 1
        change = max(1 / self.count, _SLOWEST_CHANGE)
        away = reward - self.mean
        self.mean += change * away
        self.variance = (1 - change) * (self.variance + change * away * away)


class TaskSampler(Iterator[GivenTask]):
    """Draws tasks without end: the `tasks` of `rollouts`. The same seed and records draw the same tasks."""

    def __init__(
        self,
        tasks: Sequence[GivenTask],
        *,
        seed: int = 0,
        weights: Weights = "uniform",
        splits: Mapping[str, float] | None = None,
    ) -> None:
        """Draws from `tasks`.

        Args:
            tasks: the tasks to draw from.
            seed: selects the sequence of draws.
            weights: "uniform" draws all tasks equally often. "variance" draws those more often whose
                rewards have varied, since a task that always or never succeeds teaches nothing: up to
                ten times as often. Tasks with fewer than two rewards count as varied.
            splits: how often each split is drawn, such as {"easy": 1, "hard": 3}. Without it, splits
                do not matter.

        Raises:
            ValueError: there is nothing to draw, or an argument is not valid.
        """
        if weights not in ("uniform", "variance"):
            raise ValueError(f'weights is "uniform" or "variance", not {weights!r:.100}')
        self._seed = seed
        self._weighted = weights == "variance"
        self._pools, self._shares = _pools(tasks, splits)
        self._drawn = 0
        self._rewards: dict[str, _Rewards] = {}
        self._largest = 0.0

    @classmethod
    def from_file(
        cls, path: str | Path, tasks: Sequence[TaskRef], *, weights: Weights = "variance", **arguments: Any
    ) -> Self:
        """Draws from `tasks`, and begins with the rewards in a file of `ors runs export --format difficulty`.

        Tasks are found by their content, the `spec` that their environment lists; those of the same content
        by split and index too. Tasks that are not in the file count as varied.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is another file, it has none of the tasks, or an argument is not valid.
        """
        made, known = cls(tasks, weights=weights, **arguments), _read(Path(path))
        for task in tasks:
            rows = known.get((task.environment, task_hash(task.spec or {})), {})
            only = next(iter(rows.values())) if len(rows) == 1 else None
            if found := rows.get(_label(task), only):
                made._rewards[_label(task)] = replace(found)
        if not made._rewards:
            raise ValueError(f"{path} has none of these tasks: give TaskRefs with the specs that are listed")
        made._largest = max(each.variance for each in made._rewards.values())
        return made

    def __next__(self) -> GivenTask:
        draw = random.Random(f"{self._seed}/{self._drawn}")
        self._drawn += 1
        (pool,) = draw.choices(self._pools, cum_weights=self._shares)
        while True:
            task = draw.choice(pool)
            if not self._weighted or draw.random() < self._weight(_label(task)):
                return task

    def add(self, record: EpisodeRecord) -> None:
        """Learns from an episode. One without a reward, or that failed, changes nothing."""
        if record.reward is None or isinstance(record.outcome, Failed) or not self._weighted:
            return
        rewards = self._rewards.setdefault(task_key(record.task).label, _Rewards())
        rewards.add(record.reward)
        self._largest = max(self._largest, rewards.variance)

    def state(self) -> dict[str, Any]:
        """All that later draws depend on, besides the arguments, as a JSON value."""
        rewards = {label: list(astuple(each)) for label, each in self._rewards.items()}
        drawn = {"seed": self._seed, "drawn": self._drawn, "largest": self._largest, "rewards": rewards}
        return {"tasks": self._identity, **drawn}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state()` was taken, in a sampler of the same tasks and arguments.

        Raises:
            ValueError: it is not the state of a sampler, or that of a sampler of other tasks or arguments.
        """
        try:
            tasks = state["tasks"]
            seed, drawn, largest = int(state["seed"]), int(state["drawn"]), float(state["largest"])
            rewards = {label: _Rewards(*numbers) for label, numbers in state["rewards"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"This is not the state of a TaskSampler: {error!r:.200}") from error
        if tasks != self._identity:
            raise ValueError("This is the state of a TaskSampler with other tasks, weights or splits")
        self._seed, self._drawn, self._largest, self._rewards = seed, drawn, largest, rewards

    @cached_property
    def _identity(self) -> str:
        """A digest of all that decides draws, besides the seed: tasks, weights and shares of splits."""
        digest = hashlib.sha256(repr((self._weighted, self._shares)).encode())
        for task in chain.from_iterable(self._pools):
            named = task.environment if isinstance(task, TaskRef) else ""
            digest.update(f"{named} {_label(task)}\n".encode())
        return digest.hexdigest()

    def _weight(self, label: str) -> float:
        rewards = self._rewards.get(label)
        if rewards is None or rewards.count < 2:
            return 1.0
        share = rewards.variance / self._largest if self._largest else 0.0
        return _LEAST_WEIGHT + (1 - _LEAST_WEIGHT) * share


def _read(path: Path) -> dict[tuple[str, str], dict[str, _Rewards]]:
    """The rewards of tasks by environment and content, and then by label."""
    known: dict[tuple[str, str], dict[str, _Rewards]] = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            same = known.setdefault((row["environment"], row["task"]), {})
            same[f"{row['split']}/{row['index']}"] = _Rewards(row["attempts"], row["mean"], row["variance"])
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}:{number} is not the difficulty of a task: {error!r:.200}") from None
    return known


def _pools(
    tasks: Sequence[GivenTask], splits: Mapping[str, float] | None
) -> tuple[list[Sequence[GivenTask]], list[float]]:
    """The tasks to draw from together, and the cumulated shares of these pools."""
    if not tasks:
        raise ValueError("There are no tasks to draw from")
    if splits is None:
        return [tasks], [1.0]
    if not splits:
        raise ValueError("splits is empty")
    pools = {split: [task for task in tasks if _split(task) == split] for split in splits}
    for split, share in splits.items():
        if not share > 0:
            raise ValueError(f"The share of the split {split!r} must be over 0, not {share!r}")
        if not pools[split]:
            raise ValueError(f"No task is in the split {split!r}")
    return list(pools.values()), list(accumulate(splits.values()))


def _split(task: GivenTask) -> str | None:
    if isinstance(task, TaskRef):
        return task.split
    return None if isinstance(task, Task) else task[0]


def _label(task: GivenTask) -> str:
    """The label that the records of a task have in their keys."""
    if isinstance(task, tuple):
        return f"{task[0]}/{task[1]}"
    return task_key(TaskRef("", spec=task.task_spec) if isinstance(task, Task) else task).label
