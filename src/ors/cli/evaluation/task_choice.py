"""Which tasks are played: splits, indices and random samples."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ors.cli.errors import WrongUsage
from ors.client import AsyncEnvironment
from ors.rollouts import TaskRef

HOW = "give indices like 0:100, 5 or 0,3,7:9"


@dataclass(frozen=True)
class TaskChoice:
    """Which tasks of which splits are played."""

    splits: tuple[str, ...] = ()
    """Empty: the first split."""
    indices: str | None = None
    """Indices and slices, separated by commas; None: all tasks."""
    sample: int | None = None
    """This many random tasks of the chosen ones, in all splits together."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.indices is not None:
            selected(self.indices, 0)  # reports a mistake before anything is started

    async def tasks(self, env: AsyncEnvironment) -> list[TaskRef]:
        """Lists the chosen tasks, in order.

        Raises:
            WrongUsage: a split or an index does not exist, or there is no task.
        """
        known = await env.list_splits()
        found: list[TaskRef] = []
        counts: dict[str, int] = {}
        for split in self.splits or known[:1]:
            if split not in known:
                raise WrongUsage(f"There is no split {split!r}. Splits: {', '.join(known)}")
            counts[split] = await env.num_tasks(split)
            indices = self._of_split(split, counts[split])
            found += [TaskRef(env.name, split, index) for index in indices]
        if not found:
            sizes = ", ".join(f"{split} has {count:,} tasks" for split, count in counts.items())
            given = f"--tasks {self.indices} selects none" if self.indices else "There is no task to play"
            raise WrongUsage(f"{given}: {sizes}, counted from 0")
        return self._sampled(found)

    def _of_split(self, split: str, count: int) -> Sequence[int]:
        if self.indices is None:
            return range(count)
        found = selected(self.indices, count)
        if outside := [index for index in found if not 0 <= index < count]:
            raise WrongUsage(f"There is no task {outside[0]} in {split}, which has {count:,} tasks")
        return found

    def _sampled(self, tasks: list[TaskRef]) -> list[TaskRef]:
        if self.sample is None or self.sample >= len(tasks):
            return tasks
        chosen = sorted(random.Random(self.seed).sample(range(len(tasks)), self.sample))
        return [tasks[number] for number in chosen]


def selected(text: str, count: int) -> list[int]:
    """Reads indices and slices of `count` tasks, such as "0,3,7:9".

    Raises:
        WrongUsage: the text is neither.
    """
    found: dict[int, None] = {}
    for part in text.split(","):
        try:
            bounds = [int(number) if number.strip() else None for number in part.split(":")]
            if len(bounds) > 3 or (len(bounds) == 1 and bounds[0] is None):
                raise ValueError
            chosen = [bounds[0]] if len(bounds) == 1 else range(count)[slice(*bounds)]
        except ValueError:
            raise WrongUsage(f"--tasks {text!r} is not valid: {HOW}") from None
        found |= dict.fromkeys(index for index in chosen if index is not None)
    return list(found)
