"""Counts of a running evaluation."""

from collections import Counter
from dataclasses import dataclass, field

from ors.rollouts import EpisodeRecord, Failed, TaskKey, Truncated, Usage, task_key
from ors.rollouts.records import Entry, Estimate, clustered_mean


@dataclass
class EvalTally:
    """What is known of the episodes that have ended."""

    total: int
    """Episodes to play, with those of earlier runs."""
    done: int = 0
    rewards: dict[TaskKey, list[float]] = field(default_factory=dict)
    """Rewards by task; failed and unscored episodes have none."""
    usage: Usage = field(default_factory=Usage)
    outcomes: Counter[str] = field(default_factory=Counter)

    def add(self, record: EpisodeRecord | Entry) -> None:
        """Counts an episode, as it was played or as the index of its run has it."""
        task = record.task if isinstance(record, Entry) else task_key(record.task)
        self.done += 1
        self.usage += record.usage
        self.outcomes[kind_of(record)] += 1
        if record.reward is not None:
            self.rewards.setdefault(task, []).append(record.reward)

    def mean(self) -> Estimate | None:
        """The mean reward so far, with its interval. Another thread may ask for it."""
        return clustered_mean(list(map(tuple, list(self.rewards.values()))))


def kind_of(record: EpisodeRecord | Entry) -> str:
    """The outcome in one or two words: "scored", "truncated: turns", "failed: environment"."""
    outcome = record.outcome
    if isinstance(outcome, Truncated):
        return f"truncated: {outcome.limit}"
    return f"failed: {outcome.who}" if isinstance(outcome, Failed) else outcome.type
