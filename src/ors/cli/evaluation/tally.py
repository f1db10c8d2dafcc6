"""Counts of a running evaluation."""

from collections import Counter
from dataclasses import dataclass, field

from ors.rollouts import EpisodeRecord, Failed, TaskKey, Usage, task_key
from ors.rollouts.records import Entry, Estimate, clustered_mean


@dataclass
class EvalTally:
    """Counts of the episodes that have ended."""

    total: int
    """Episodes to play, with those of earlier runs."""
    done: int = 0
    rewards: dict[TaskKey, list[float]] = field(default_factory=dict)
    """Rewards by task; failed and unscored episodes have none."""
    usage: Usage = field(default_factory=Usage)
    failures: Counter[str] = field(default_factory=Counter)
    """Failed episodes, by who failed."""

    def add(self, record: EpisodeRecord | Entry) -> None:
        """Counts an episode, as it was played or as the index of its run has it."""
        task = record.task if isinstance(record, Entry) else task_key(record.task)
        self.done += 1
        self.usage += record.usage
        if isinstance(record.outcome, Failed):
            self.failures[record.outcome.who] += 1
        if record.reward is not None:
            self.rewards.setdefault(task, []).append(record.reward)

    def mean(self) -> Estimate | None:
        """The mean reward so far, with its interval. Another thread may ask for it."""
        return clustered_mean(list(map(tuple, list(self.rewards.values()))))
