"""Statistics of episodes. What an episode counts as is said by `Scoring`; failed ones are left out."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import comb, exp, floor, fsum, hypot, isfinite, lgamma, log, sqrt
from typing import TypeVar

from ors._rewards import MOST_COMPONENTS
from ors.providers.messages import Usage
from ors.rollouts.episodes.episode import TaskKey
from ors.rollouts.episodes.outcome import Failed, Truncated
from ors.rollouts.episodes.scoring import BY_DEFAULT, Scoring
from ors.rollouts.records.reader import Entry

CONFIDENCE = 0.95
_STEPS = 200
_PRECISION = 1e-12
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, its standard error and its 95% confidence interval."""

    mean: float
    error: float | None = None
    """None with one task, as nothing is known of how tasks differ, and where it is beyond all floats."""
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        interval = "" if self.low is None or self.high is None else f" [{self.low:.4g}, {self.high:.4g}]"
        return f"{self.mean:.4g}{interval}"


@dataclass(frozen=True, slots=True)
class PassRate:
    """How many tasks are solved when each is tried k times, over the tasks with at least k episodes."""

    k: int
    any: float
    """pass@k: at least one of k episodes solves the task."""
    all: float
    """pass^k: all of k episodes solve the task."""
    tasks: int


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds that half of the cases, and 95% of them, take at most."""

    p50: float
    p95: float
    count: int


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed episodes of one kind."""

    who: str
    stage: str
    error: str
    count: int
    message: str = ""
    """The message of the first of them."""


@dataclass(frozen=True, slots=True)
class Row:
    """The episodes of one split or task."""

    name: str
    tasks: int
    episodes: int
    rewarded: int
    """Episodes that have a reward of their own."""
    reward: Estimate | None
    failed: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of the episodes of a run."""

    episodes: int
    tasks: int
    rewarded: int
    """Episodes that have a reward of their own."""
    unrewarded: int
    """Episodes that ended without a reward, and count as `scoring` says. All others failed: left out."""
    scoring: Scoring
    reward: Estimate | None
    """The mean of all episodes that did not fail."""
    components: Mapping[str, Estimate]
    """The same of each named reward, the commonest first."""
    passes: Sequence[PassRate]
    """Empty unless all episodes count as 0 or 1."""
    outcomes: Mapping[str, int]
    truncated: Mapping[str, int]
    """By the limit that was reached."""
    failures: Sequence[Failures]
    splits: Sequence[Row]
    latencies: Mapping[str, Latency]
    usage: Usage = field(default_factory=Usage)
    turns: float = 0.0
    """Mean number of the agent's messages in an episode."""
    calls: float = 0.0
    """Mean number of calls in an episode."""

    @property
    def size(self) -> str:
        """How much was played, such as "8 episodes of 4 tasks"."""
        return f"{counted(self.episodes, 'episode')} of {counted(self.tasks, 'task')}"

    @property
    def caveats(self) -> str:
        """How many episodes ended without a reward or failed, and what they count as."""
        failed = self.outcomes.get("failed", 0)
        ended = f", {self.unrewarded:,} without a reward (counted as {self.scoring})"
        return (ended if self.unrewarded else "") + (f", {failed:,} failed (left out)" if failed else "")


def counted(count: int, word: str) -> str:
    """A number with its noun: "1 episode", "2,000 episodes"."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def summarize(entries: Sequence[Entry]) -> Summary:
    scores = scores_by_task(entries).values()
    rewarded = _rewarded(entries)
    return Summary(
        episodes=len(entries),
        tasks=len({entry.task for entry in entries}),
        rewarded=rewarded,
        unrewarded=sum(map(len, scores)) - rewarded,
        scoring=entries[0].scoring if entries else BY_DEFAULT,
        reward=mean_score(scores, declared_range(entries)),
        components=_component_means(entries),
        passes=pass_rates(list(scores)),
        outcomes=_counts(entry.outcome.type for entry in entries),
        truncated=_counts(each.outcome.limit for each in entries if isinstance(each.outcome, Truncated)),
        failures=_failures(entries),
        splits=_rows(entries, lambda task: (task.environment, task.split), lambda task: task.split or "-"),
        latencies=_latencies(entries),
        usage=sum((entry.usage for entry in entries), Usage()),
        turns=fsum(entry.turns for entry in entries) / max(1, len(entries)),
        calls=fsum(entry.calls for entry in entries) / max(1, len(entries)),
    )


def task_rows(entries: Sequence[Entry]) -> list[Row]:
    """One row for each task, in the order of splits and indices."""
    return _rows(entries, lambda task: task, lambda task: task.label)


def mean_score(
    tasks: Iterable[Sequence[float]], bounds: tuple[float, float] | None = None
) -> Estimate | None:
    """The mean of what all episodes count as. If all are between bounds, so is its interval.

    The bounds are 0 and 1 unless others are declared. The method is Wilson's, with the number of independent
    episodes that would have the same error; where all are at one bound, it is the number of tasks.
    """
    low, high = bounds or (0.0, 1.0)
    width = high - low
    tasks = [task for task in tasks if task]
    found = clustered_mean(tasks)
    if (
        found is None
        or found.error is None
        or not all(low <= each <= high for task in tasks for each in task)
    ):
        return found
    mean, t = (found.mean - low) / width, quantile(CONFIDENCE, len(tasks) - 1)
    variance = mean * (1 - mean)
    if variance > 0 and not found.error:
        return found
    share = t * t * ((found.error / width) ** 2 / variance if variance > 0 else 1 / len(tasks))
    middle, reach = (mean + share / 2) / (1 + share), sqrt(share * (variance + share / 4)) / (1 + share)
    least, most = max(0.0, middle - reach), min(1.0, middle + reach)
    return replace(found, low=low + width * least, high=low + width * most)


def declared_range(entries: Iterable[Entry]) -> tuple[float, float] | None:
    """The range of rewards that the environments of all episodes declare; None if it is not the same."""
    found = {entry.range for entry in entries}
    return found.pop() if len(found) == 1 else None


def clustered_mean(clusters: Iterable[Sequence[float]]) -> Estimate | None:
    """The mean of all values; its error takes the values of one cluster as dependent. None without values.

    Episodes of one task resemble each other, so that the usual error would be too small. With one value in
    each cluster this is the usual error. The interval is Student's, with one degree less than clusters.
    """
    clusters = [cluster for cluster in clusters if cluster]
    count = sum(map(len, clusters))
    if not count:
        return None
    mean = mean_of([value for cluster in clusters for value in cluster])
    if len(clusters) < 2:
        return Estimate(mean)
    try:
        spread = hypot(*(fsum(value - mean for value in cluster) for cluster in clusters))
    except (OverflowError, ValueError):  # beyond all floats, or the difference of two such
        return Estimate(mean)
    error = spread * sqrt(len(clusters) / (len(clusters) - 1)) / count
    reach = error * quantile(CONFIDENCE, len(clusters) - 1)
    return Estimate(mean, error, mean - reach, mean + reach) if isfinite(reach) else Estimate(mean)


def mean_of(values: Sequence[float]) -> float:
    try:
        return fsum(values) / len(values)
    except OverflowError:  # the sum is beyond all floats; the mean is not
        return fsum(value / len(values) for value in values)


def pass_rates(tasks: Sequence[Sequence[float]]) -> list[PassRate]:
    """pass@k and pass^k for k = 1, 2, 4, … and the most episodes of a task; empty unless rewards are 0/1."""
    if not tasks or any(value not in (0, 1) for task in tasks for value in task):
        return []
    most = max(map(len, tasks))
    ks = sorted({most, *(2**power for power in range(most.bit_length()))})
    return [_pass_rate(tasks, k) for k in ks]


def _pass_rate(tasks: Sequence[Sequence[float]], k: int) -> PassRate:
    counted = [(len(task), round(sum(task))) for task in tasks if len(task) >= k]
    some = [pass_at_k(n, solved, k) for n, solved in counted]
    every = [pass_hat_k(n, solved, k) for n, solved in counted]
    return PassRate(k, fsum(some) / len(some), fsum(every) / len(every), len(counted))


def pass_at_k(n: int, solved: int, k: int) -> float:
    """The chance that at least one of k episodes, drawn from n of which some solved the task, solved it."""
    return 1 - comb(n - solved, k) / comb(n, k)


def pass_hat_k(n: int, solved: int, k: int) -> float:
    """The chance that all of k episodes, drawn from n of which some solved the task, solved it."""
    return comb(solved, k) / comb(n, k)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of ordered values lies, interpolated between neighbours."""
    place = share * (len(ordered) - 1)
    low = floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def scores_by_task(entries: Iterable[Entry]) -> dict[TaskKey, list[float]]:
    """What the episodes of each task count as. Failed ones are left out."""
    groups: dict[TaskKey, list[float]] = {}
    for entry in entries:
        if (score := entry.score) is not None:
            groups.setdefault(entry.task, []).append(score)
    return groups


def scores_by_component(entries: Sequence[Entry]) -> dict[str, dict[TaskKey, list[float]]]:
    """What each named reward counts as, in the episodes of each task. Failed episodes are left out.

    An episode that counts but lacks a reward counts as 0 in it, if another of its environment has it. So the
    means add up to that of the reward. Only the commonest names are kept: some graders name one per task.
    """
    counts: dict[str, Counter[str]] = {}
    for entry in entries:
        counts.setdefault(entry.task.environment, Counter()).update(entry.components.keys())
    commonest = sum(counts.values(), Counter[str]()).most_common(MOST_COMPONENTS)
    groups: dict[str, dict[TaskKey, list[float]]] = {name: {} for name, _ in commonest}
    for entry in entries:
        if entry.score is not None:
            for name in groups.keys() & counts[entry.task.environment].keys():
                groups[name].setdefault(entry.task, []).append(entry.components.get(name, 0.0))
    return groups


def _component_means(entries: Sequence[Entry]) -> dict[str, Estimate]:
    means = {name: mean_score(tasks.values()) for name, tasks in scores_by_component(entries).items()}
    return {name: mean for name, mean in means.items() if mean is not None}


def _rewarded(entries: Iterable[Entry]) -> int:
    return sum(entry.score is not None and entry.reward is not None for entry in entries)


def _rows(entries: Sequence[Entry], key: Callable[[TaskKey], K], name: Callable[[TaskKey], str]) -> list[Row]:
    groups: dict[K, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.task.order):
        groups.setdefault(key(entry.task), []).append(entry)
    several = len({entry.task.environment for entry in entries}) > 1
    return [
        _row(f"{group[0].task.environment} " if several else "", name, group) for group in groups.values()
    ]


def _row(prefix: str, name: Callable[[TaskKey], str], entries: Sequence[Entry]) -> Row:
    return Row(
        prefix + name(entries[0].task),
        tasks=len({entry.task for entry in entries}),
        episodes=len(entries),
        rewarded=_rewarded(entries),
        reward=mean_score(scores_by_task(entries).values(), declared_range(entries)),
        failed=sum(isinstance(entry.outcome, Failed) for entry in entries),
    )


def _counts(values: Iterable[str]) -> dict[str, int]:
    return dict(Counter(values).most_common())


def _failures(entries: Iterable[Entry]) -> list[Failures]:
    kinds: dict[tuple[str, str, str], list[str]] = {}
    for entry in entries:
        if isinstance(failed := entry.outcome, Failed):
            kinds.setdefault((failed.who, failed.stage, failed.error), []).append(failed.message)
    found = [Failures(*kind, len(messages), messages[0]) for kind, messages in kinds.items()]
    return sorted(found, key=lambda each: -each.count)


def _latencies(entries: Sequence[Entry]) -> dict[str, Latency]:
    values = {
        "episode": [entry.seconds for entry in entries],
        "model": [seconds for entry in entries for seconds in entry.model_seconds],
        "call": [seconds for entry in entries for seconds in entry.call_seconds],
    }
    # 0 means that nobody measured it.
    measured = {name: sorted(each for each in found if each > 0) for name, found in values.items()}
    return {
        name: Latency(percentile(found, 0.5), percentile(found, 0.95), len(found))
        for name, found in measured.items()
        if found
    }


# ── Student's t distribution ──


def two_sided(t: float, degrees: int) -> float:
    """The probability of a value as far from 0 as `t`, or farther."""
    return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))


def quantile(confidence: float, degrees: int) -> float:
    """The value that is not exceeded, on either side of 0, with this probability."""
    low, high = 0.0, 1.0
    while two_sided(high, degrees) > 1 - confidence:
        high *= 2
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        if two_sided(middle, degrees) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function; with b = n - a + 1, at least a successes in n trials."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    # The continued fraction converges fast on this side of the mean only.
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x))
    return front * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, from its front (Lentz's method)."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            value *= c * d
        if abs(c * d - 1) < _PRECISION:
            break
    return value
