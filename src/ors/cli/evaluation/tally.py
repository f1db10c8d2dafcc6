"""Counts of a running evaluation."""

from collections import Counter
from dataclasses import dataclass, field

from ors.rollouts import EpisodeRecord, Failed, TaskKey, Usage, task_key
from ors.rollouts.episodes.scoring import BY_DEFAULT, Scoring
from ors.rollouts.records import Entry, Estimate
from ors.rollouts.records.statistics import mean_score


@dataclass
class EvalTally:
    """Counts of the episodes that have ended."""

    total: int
    """Episodes to play, with those of earlier runs."""
    scoring: Scoring = BY_DEFAULT
    done: int = 0
    unrewarded: int = 0
    """Episodes that ended without a reward, and count as `scoring` says."""
    rewards: dict[TaskKey, list[float]] = field(default_factory=dict)
    """What the episodes count as, by task; failed ones are left out."""
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
        if (score := self.scoring.score(record.outcome, record.reward)) is not None:
            self.rewards.setdefault(task, []).append(score)
            self.unrewarded += record.reward is None

    def mean(self) -> Estimate | None:
        """The mean reward so far, with its interval. Another thread may ask for it."""
        return mean_score(list(map(tuple, list(self.rewards.values()))))
