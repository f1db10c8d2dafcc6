"""TaskSampler: an endless draw of tasks, for training."""

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, Literal

from ors.client import Task
from ors.rollouts.episodes.episode import EpisodeRecord, TaskRef
from ors.rollouts.episodes.outcome import Failed
from ors.rollouts.episodes.task import GivenTask, task_key

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
        weights: Literal["uniform", "variance"] = "uniform",
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


def _pools(
    tasks: Sequence[GivenTask], splits: Mapping[str, float] | None
) -> tuple[list[Sequence[GivenTask]], list[float]]:
    """The tasks to draw from together, and the cumulated shares of these pools."""
    if not tasks:
        raise ValueError("There are no tasks to draw from")
    if splits is None:
        return [tasks], [1.0]
    pools: dict[str, list[GivenTask]] = {split: [] for split in splits}
    for task in tasks:
        split = _split(task)
        if split in pools:
            pools[split].append(task)
    for split, share in splits.items():
        if not share > 0:
            raise ValueError(f"The share of the split {split!r} must be over 0, not {share!r}")
        if not pools[split]:
            raise ValueError(f"No task is of the split {split!r}")
    if not pools:
        raise ValueError("splits names no split")
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
