"""Health of a run: faults, wasted work and undeserved rewards that its episodes show.

What chance can cause, such as a task that never succeeds, is a finding only if chance is no explanation:
`ALPHA` is how often it may be. Failures, limits and rewards out of range are counted.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf, sqrt
from statistics import correlation
from typing import Any, TypeVar

from ors.rollouts.episodes.outcome import Failed, Refused, Scored, Truncated, Unscored
from ors.rollouts.records.reader import Entry
from ors.rollouts.records.statistics import counted, incomplete_beta, mean_of, percentile, two_sided

_AGAIN = "then play these episodes again with `ors eval --resume RUN`"
_ADVICE = {
    "agent": f"Fix the agent's code, {_AGAIN} and `--retry agent`",
    "model": f"Check the model provider, {_AGAIN}",
    "environment": f"Fix the environment's code, {_AGAIN}",
    "infrastructure": f"Check the server and the network, {_AGAIN}",
    "grade": "Fix grade(), then grade the run again with `ors regrade`",
    "hit_limit": "Raise the limit, or make the tasks shorter",
    "unscored": "Read some: if the agent does not know how to submit, say so in the prompt or by a nudge",
    "masked": "If the agent causes it, score them (unscored_reward, failed_reward), or it pays off",
    "outside_range": "Fix the grader, or declare the range that it has (reward_range)",
    "dominating": "Rescale the components, unless the others are meant to weigh so little",
    "no_variance": "They give no gradient: check the grader, leave them out, or reward partial success",
    "never_succeeds": "Play the gold solution (`--model gold`): the tasks may be broken, or too hard",
    "always_succeeds": "They teach nothing: check that the grader can fail, or leave them out",
    "length": "Read the longest: the grader may reward length alone",
    "no_calls": "Read them: the grader may accept an answer without work",
    "short": "Read them: they may have found a way around the task",
    "repeated": "Read some: the grader may accept one answer for everything",
}
ALPHA = 0.005
SHARE = 0.05
"""Smaller shares of episodes that hit a limit, or have no reward, are no finding."""
DOMINATING = 0.95
"""A component dominates if it is so much of the sum of all."""
FLAT_SHARE = 0.25
"""A smaller share of groups without variance is no finding."""
LARGE = 4
"""A task with fewer episodes is not said to succeed always or never."""
MANY = 32
"""So many episodes with the same reward are a finding, whatever their tasks."""
CORRELATION = 0.5
"""A weaker correlation of length and reward is no finding."""
FEW = 20
"""With fewer episodes, nothing is said about correlations, and `Health` does not look."""
K = TypeVar("K", bound=Hashable)
Found = Iterator["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a run that a person should look at."""

    kind: str
    """Such as "never_succeeds"; of failures, also who failed, at which stage, and the error."""
    text: str
    """What was found, with its figure."""
    advice: str
    """What to do."""
    episodes: tuple[str, ...]
    """The ids of the episodes behind it."""

    def __str__(self) -> str:
        return f"{self.text}. {self.advice}."


def check(entries: Sequence[Entry]) -> list[Finding]:
    """The findings about episodes."""
    scored = [each for each in entries if isinstance(each.outcome, Scored) and each.reward is not None]
    return [
        *_failures(entries),
        *_counted(entries),
        *_outside(scored),
        *_constant(entries),
        *_dominating(scored),
        *_length(scored),
        *_without_calls(scored),
        *_short(scored),
        *_repeated(scored),
    ]


class Health:
    """Findings while episodes come in. Each is reported once."""

    def __init__(self, window: int | None = None) -> None:
        """With a window, only so many of the latest episodes count."""
        self._entries = deque[Entry](maxlen=window)
        self._told: set[str] = set()
        self._due = FEW

    def add(self, entries: Iterable[Entry]) -> list[Finding]:
        """Findings that were not there before. It looks each time there are half as many episodes more."""
        for each in entries:
            self._entries.append(each)
            self._due -= 1
        if self._due > 0:
            return []
        self._due = max(FEW, len(self._entries) // 2)
        new = [each for each in check(list(self._entries)) if each.kind not in self._told]
        self._told |= {each.kind for each in new}
        return new


# ── What is counted ──


def _failures(entries: Sequence[Entry]) -> Found:
    failed = [(each, each.outcome) for each in entries if isinstance(each.outcome, Failed)]
    kinds = Counter((outcome.who, outcome.stage, outcome.error) for _, outcome in failed)
    for kind, _ in kinds.most_common():
        group = [each for each, found in failed if (found.who, found.stage, found.error) == kind]
        text = f"{_share(group, entries)} failed: {', '.join(kind)}"
        advice = "grade" if kind[:2] == ("environment", "closing") else kind[0]
        yield _finding(f"failed {' '.join(kind)}", text, group, advice)


def _counted(entries: Sequence[Entry]) -> Found:
    limits = Counter(each.outcome.limit for each in entries if isinstance(each.outcome, Truncated))
    names = ", ".join(f"{name} {count:,}" for name, count in limits.most_common())
    truncated = [each for each in entries if isinstance(each.outcome, Truncated)]
    unscored = [each for each in entries if isinstance(each.outcome, Unscored | Refused)]
    masked = [each for each in entries if each.score is None]
    for kind, text, group in (
        ("hit_limit", f"hit a limit ({names})", truncated),
        ("unscored", "ended without a reward", unscored),
        ("masked", "left out of means and of training", masked),
    ):
        if group and len(group) >= SHARE * len(entries):
            yield _finding(kind, f"{_share(group, entries)} {text}", group)


def _outside(scored: Sequence[Entry]) -> Found:
    ranged = [(each, each.range or (-inf, inf)) for each in scored]
    group = [each for each, (low, high) in ranged if not low <= _reward(each) <= high]
    if group:
        low, high = group[0].range or (-inf, inf)
        text = f"{_share(group, scored)} earned a reward outside {low:g} to {high:g}"
        yield _finding("outside_range", f"{text}, such as {_reward(group[0]):g}", group)


def _dominating(scored: Sequence[Entry]) -> Found:
    group = [each for each in scored if len(each.components) > 1]
    weights: Counter[str] = Counter()
    for each in group:
        weights.update({name: abs(value) for name, value in each.components.items()})
    for name, weight in weights.most_common(1) if len(group) >= FEW else ():
        if DOMINATING * weights.total() <= weight > 0:
            text = f"The component {name!r} is {weight / weights.total():.1%} of all that was earned"
            yield _finding("dominating", text, [each for each in group if each.components.get(name)])


# ── Tasks and groups ──


def _constant(entries: Sequence[Entry]) -> Found:
    """Groups of one task whose episodes all have the same reward, if that is more than luck."""
    scored = [each for each in entries if each.score is not None]
    groups = [each for each in _grouped(scored, lambda each: each.task) if len(each) > 1]
    values = Counter(each.score or 0.0 for group in groups for each in group)
    if len(values) < 2:
        if values.total() >= MANY:
            text = f"All {values.total():,} episodes earned {min(values):g}, so no group has any variance"
            yield _finding("no_variance", text, chain.from_iterable(groups))
        return
    yield from _never_or_always(groups, "never", min(values))
    yield from _never_or_always(groups, "always", max(values))
    total = values.total()
    flat = [each for each in groups if len({one.score for one in each}) == 1]
    luck = _luck(groups, [count / total for count in values.values()])
    if len(flat) >= FLAT_SHARE * len(groups) and at_least(len(flat), len(groups), luck) < ALPHA:
        text = f"{_some(flat, groups, 'group')} have no variance of reward ({luck:.0%} expected by chance)"
        yield _finding("no_variance", text, chain.from_iterable(flat))


def _never_or_always(groups: Sequence[list[Entry]], kind: str, reward: float) -> Found:
    groups = [each for each in groups if len(each) >= LARGE]
    fixed = [each for each in groups if {one.score for one in each} == {reward}]
    if not 0 < len(fixed) < len(groups):
        return
    luck = _luck(groups, [_chance(groups, reward)])
    if at_least(len(fixed), len(groups), luck) < ALPHA:
        tasks = ", ".join(each[0].task.label for each in fixed[:5]) + (", …" if len(fixed) > 5 else "")
        text = f"{_some(fixed, groups, 'task')} {kind} succeed: all their episodes earned {reward:g}"
        text = f"{text} ({luck * len(groups):.2g} expected by chance): {tasks}"
        yield _finding(f"{kind}_succeeds", text, chain.from_iterable(fixed))


def _chance(groups: Sequence[list[Entry]], reward: float) -> float:
    """How likely an episode has this reward, from groups in which not all have it: the others may be broken.

    It is at the upper end of what these groups allow, so that few of them are no proof. Groups in which all
    have it by luck are missing from the share that is seen, which the loop makes up for.
    """
    hits = [[one.score == reward for one in each] for each in groups]
    others = [one for each in hits if not all(each) for one in each]
    seen = sum(others) / len(others)
    seen = chance = min(1.0, seen + 1.5 * sqrt(seen * (1 - seen) / len(others)))
    for _ in range(50):
        chance = seen + (1 - seen) * _luck(groups, [chance])
    return chance


def _luck(groups: Sequence[list[Entry]], chances: Sequence[float]) -> float:
    """The share of groups in which all episodes have the same one of some rewards by chance."""
    sizes = Counter(map(len, groups))
    return sum(n * sum(chance**size for chance in chances) for size, n in sizes.items()) / len(groups)


# ── Rewards that were perhaps not deserved ──


def _length(scored: Sequence[Entry]) -> Found:
    """Whether longer episodes earn more, within tasks if these have several episodes."""
    known = all(each.usage.output_tokens and not each.usage.unknown for each in scored)
    # Who is paid by the step earns more by taking more steps.
    paid = 2 * sum(sum(step is not None for step in each.rewards) > 1 for each in scored) > len(scored)

    def length(entry: Entry) -> float:
        total = entry.usage.output_tokens if known else entry.actions.characters
        return total / max(1, entry.turns) if paid else total

    groups = [each for each in _grouped(scored, lambda each: each.task) if len(each) > 1]
    if sum(map(len, groups)) < FEW:
        groups = [list(scored)]
    count = sum(map(len, groups))
    if count < FEW:
        return
    rewards, lengths = (_ranks(_centred(groups, value)) for value in (_reward, length))
    if min(len(set(rewards)), len(set(lengths))) < 2:
        return
    found, degrees = min(1 - 1e-9, correlation(rewards, lengths)), max(1, count - len(groups) - 1)
    if found > CORRELATION and two_sided(found * sqrt(degrees / (1 - found * found)), degrees) < ALPHA:
        longest = sorted(chain.from_iterable(groups), key=length, reverse=True)[: count // 10]
        what = f"{found:.2f} of reward and {'output tokens' if known else 'characters'}"
        text = f"Longer episodes earn more: rank correlation {what}, over {count:,} episodes"
        yield _finding("length", text, longest)


def _centred(groups: Iterable[list[Entry]], value: Callable[[Entry], float]) -> list[float]:
    means = [(group, mean_of([*map(value, group)])) for group in groups]
    return [value(each) - mean for group, mean in means for each in group]


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [(bisect_left(ordered, each) + bisect_right(ordered, each)) / 2 for each in values]


def _without_calls(scored: Sequence[Entry]) -> Found:
    if not any(each.actions.calls for each in scored):
        return  # the only tool is one that grades the last message
    floor = min(0.0, *map(_reward, scored))
    group = [each for each in scored if not each.actions.calls and _reward(each) > floor]
    if group:
        text = f"{_share(group, scored)} earned a reward without any tool call"
        yield _finding("no_calls", text, group)


def _short(scored: Sequence[Entry]) -> Found:
    """Wins in the first quarter of the usual calls, if a call there wins more often than later in the half.

    Luck wins as often in both, and work in neither. Usual is the upper quartile: many may be short. Where the
    early wins end is tried at 1, 2, 4, … calls.
    """
    wins, usual = _wins(scored), list[tuple[Entry, float]]()
    every = sorted(each.actions.calls for each in scored)
    for group in _grouped(scored, lambda each: each.task):
        own = sorted(each.actions.calls for each in group)
        usual += [(each, percentile(own if len(own) > 2 else every, 0.75)) for each in group]
    cuts = [2**power for power in range(max([0, *(int(calls // 4) for _, calls in usual)]).bit_length())]
    for cut in cuts:
        early, chance = _early(usual, wins, cut)
        if len(early) > 2 and chance * len(cuts) < ALPHA:
            most = counted(max(each.actions.calls for each in early), "call")
            text = f"{_share(early, scored)} earned the highest reward in at most {most}"
            yield _finding("short", f"{text} (usual: {percentile(every, 0.75):g})", early)
            return


def _early(usual: Sequence[tuple[Entry, float]], wins: set[str], cut: int) -> tuple[list[Entry], float]:
    """Who won in so many calls, within a quarter of the usual ones; and how likely that is by luck."""
    early = list[Entry]()
    tries = later = later_tries = 0
    for entry, calls in usual:
        first, half, made = min(cut, int(calls // 4)), int(calls // 2), entry.actions.calls
        if first:
            tries, later_tries = tries + min(made, first), later_tries + max(0, min(made, half) - first)
            later += entry.id in wins and first < made <= half
            early += [entry] if entry.id in wins and 0 < made <= first else []
    return early, at_least(len(early), len(early) + later, tries / max(1, tries + later_tries))


def _repeated(scored: Sequence[Entry]) -> Found:
    """One answer to most tasks; or one that wins more often than others, where answers differ by task."""
    answered = [each for each in scored if each.actions.answer]
    tasks, wins = _tasks(answered), _wins(scored)
    group = max(_grouped(answered, lambda each: each.actions.sequence), key=_tasks, default=[])
    if 2 * len(group) > len(answered) and at_least(_tasks(group), tasks, 0.5) < ALPHA:
        text = f"{_share(group, scored)} gave the same answer, to {_tasks(group):,} of {tasks:,} tasks"
        yield _finding("repeated", f"{text} (mean reward {_mean(group):.3g})", group)
        return
    groups = _grouped(answered, lambda each: each.actions.answer)
    several = [each for each in groups if _tasks(each) >= 5]
    group = max(several, key=_mean, default=[])
    if not group or 2 * (len(groups) - 1) < tasks:
        return
    won = sum(each.id in wins for each in group)
    rate = (sum(each.id in wins for each in answered) - won + 1) / (len(answered) - len(group) + 2)
    if at_least(won, len(group), rate) * len(several) < ALPHA and won >= (1 + rate) / 2 * len(group):
        text = f"{_share(group, scored)} gave the same answer, to {_tasks(group):,} tasks"
        text += f", and {won / len(group):.0%} of them won, against {rate:.0%} of the others"
        yield _finding("repeated", text, group)


# ── Small parts ──


def at_least(count: int, trials: int, chance: float) -> float:
    """The probability of `count` successes or more in so many trials."""
    return incomplete_beta(count, trials - count + 1, chance) if count > 0 else 1.0


def _grouped(entries: Iterable[Entry], key: Callable[[Entry], K]) -> list[list[Entry]]:
    groups: dict[K, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(key(entry), []).append(entry)
    return list(groups.values())


def _wins(scored: Sequence[Entry]) -> set[str]:
    """Ids of episodes within a tenth of the highest reward; none if all rewards are the same."""
    rewards = [_reward(each) for each in scored] or [0.0]
    low, high = min(rewards), max(rewards)
    return {each.id for each in scored if low < high and _reward(each) >= high - (high - low) / 10}


def _tasks(entries: Iterable[Entry]) -> int:
    return len({each.task for each in entries})


def _reward(entry: Entry) -> float:
    return entry.reward or 0.0


def _mean(entries: Iterable[Entry]) -> float:
    return mean_of([*map(_reward, entries)])


def _share(group: Sequence[Entry], entries: Sequence[Entry]) -> str:
    return f"{_some(group, entries, 'episode')} ({len(group) / len(entries):.1%})"


def _some(part: Sequence[Any], whole: Sequence[Any], word: str) -> str:
    return f"{len(part):,} of {counted(len(whole), word)}"


def _finding(kind: str, text: str, group: Iterable[Entry], advice: str = "") -> Finding:
    return Finding(kind, text, _ADVICE[advice or kind], tuple(each.id for each in group))
