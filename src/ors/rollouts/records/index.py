"""The index of a run: what tables need of each episode, and where its line is."""

import sys
from dataclasses import dataclass
from typing import Any

from ors._json import loads
from ors.rollouts.agent import TaskRef
from ors.rollouts.episodes.messages import Usage
from ors.rollouts.episodes.outcome import Failed, Outcome, Party
from ors.rollouts.episodes.scoring import BY_DEFAULT, Scoring
from ors.rollouts.records.errors import RunError
from ors.rollouts.records.line import Line, check_schema, parsed, validated
from ors.rollouts.task_key import TaskKey, task_key

_MESSAGES = b',"messages":['
_BEGIN = b'{"schema":'


@dataclass(frozen=True, slots=True)
class Entry:
    """One episode in the index."""

    id: str
    task: TaskKey
    sample: int
    agent: str
    outcome: Outcome
    reward: float | None
    usage: Usage
    started: float
    seconds: float
    attempts: int
    model_seconds: tuple[float, ...]
    """Seconds of each model request."""
    call_seconds: tuple[float, ...]
    """Seconds of each call."""
    part: str
    """The name of its file."""
    offset: int
    size: int
    scoring: Scoring = BY_DEFAULT

    @property
    def score(self) -> float | None:
        """What it counts as in means: its reward, or what was chosen for its outcome; None if it failed."""
        return self.scoring.score(self.outcome, self.reward)

    @property
    def turns(self) -> int:
        """How many messages the agent sent."""
        return len(self.model_seconds)

    @property
    def calls(self) -> int:
        """How many tools it called."""
        return len(self.call_seconds)

    @property
    def key(self) -> tuple[TaskKey, int, str]:
        """Which episode of the run this is: task, sample, agent."""
        return self.task, self.sample, self.agent

    @property
    def failed_by(self) -> Party | None:
        """Who failed, if it did: such an episode may be played again."""
        return self.outcome.who if isinstance(self.outcome, Failed) else None


def entry(line: bytes, part: str, offset: int, scoring: Scoring) -> Entry:
    """The entry of a line.

    Raises:
        RunError: the line is broken or of a newer schema.
    """
    head = _head(line)
    if head is None:
        head = parsed(line)
        head["times"] = _times(head.get("messages"))
    read = validated({**head, "messages": (), "earlier": ()}, Line)
    return _of(read, part, offset, len(line), scoring)


def _of(read: Line, part: str, offset: int, size: int, scoring: Scoring) -> Entry:
    return Entry(
        read.id,
        task_key(TaskRef(read.environment, read.split, read.index, read.task)),
        read.sample,
        sys.intern(read.agent),
        read.outcome,
        read.reward,
        read.tokens,
        read.started,
        read.seconds,
        read.attempts,
        read.times.model,
        read.times.calls,
        part,
        offset,
        size,
        scoring,
    )


def _head(line: bytes) -> dict[str, Any] | None:
    """The keys before the messages, read without the messages; None if the line is not as we write it.

    The mark is outside of every string, because quotes in strings are escaped. In a nested object it would
    leave the outer one open, which is not valid JSON.
    """
    end = line.find(_MESSAGES)
    # A second beginning may be another line, after one that was torn.
    if end < 0 or not line.endswith(b"]}\n") or line.find(_BEGIN, 1) >= 0:
        return None
    try:
        found = loads(line[:end] + b"}")
    except ValueError:
        return None
    check_schema(found.get("schema"))
    return found if "times" in found else None


def _times(messages: Any) -> dict[str, list[Any]]:
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        raise RunError("messages: not a list of messages")
    return {
        key: [each.get("seconds", 0.0) for each in messages if each.get("role") == role]
        for key, role in (("model", "assistant"), ("calls", "tool"))
    }
