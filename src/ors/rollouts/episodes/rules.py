"""Rules: how episodes are played, when they are truncated, and how rewards become one number."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from math import isfinite
from typing import Any, Literal, Required, TypedDict, get_args

from ors._rewards import MOST_COMPONENTS
from ors.providers.messages import Message, ToolMessage, Usage
from ors.rollouts.episodes.episode import EpisodeKey
from ors.rollouts.episodes.outcome import Failed, Outcome, Party, Truncated
from ors.rollouts.episodes.scoring import Scoring

ReductionName = Literal["last", "sum", "max"]
Reduction = ReductionName | Callable[[Sequence[float]], float]
"""A name, or a function of the rewards that were given, in their order. It is not called without any."""

_BY_NAME: dict[str, Callable[[Sequence[float]], float]] = {
    "last": lambda rewards: rewards[-1],
    "sum": sum,
    "max": max,
}


def reducer(reduction: Reduction) -> Callable[[Sequence[float]], float]:
    if callable(reduction):
        return reduction
    if reduction not in _BY_NAME:
        names = ", ".join(get_args(ReductionName))
        raise ValueError(f"Unknown reward reduction {reduction!r}: use one of {names}, or a function")
    return _BY_NAME[reduction]


def reduce_components(steps: Iterable[Mapping[str, float]], reduction: Reduction) -> dict[str, float]:
    """The named rewards of an episode: those of its steps, each name reduced alone.

    One whose reduction fails is left out, as with a function that needs a value for each step; and so are
    names beyond the limit of one result.
    """
    series: dict[str, list[float]] = {}
    for step in steps:
        for name, value in step.items():
            series.setdefault(name, []).append(value)
    reduced: dict[str, float] = {}
    for name, values in list(series.items())[:MOST_COMPONENTS]:
        with suppress(Exception):
            if isfinite(value := reducer(reduction)(values)):
                reduced[name] = float(value)
    return reduced


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLimits:
    """The limits of one episode, which is truncated when it reaches one. None means no limit."""

    turns: int | None = None
    """Maximum replies of the agent; the calls of the last one still run."""
    tokens: int | None = None
    """Maximum input and output tokens of an episode, checked after each turn."""
    cost: float | None = None
    """Maximum cost of an episode, checked after each turn; needs prices."""
    seconds: float | None = None
    """Time limit of an episode from its prompt on, without waiting for other model requests."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and not value > 0:
                raise ValueError(f"The limit {each.name!r} must be over 0, not {value!r}")

    def blind(self, usage: Usage) -> str | None:
        """Which limit cannot be kept because nobody knows what was used."""
        if self.cost is not None and usage.cost is None:
            return "cost: the model provider reports no usage, or the agent has no prices"
        if self.tokens is not None and usage.unknown:
            return "tokens: the model provider reports no usage"
        return None

    def reached(self, turns: int, usage: Usage) -> Truncated | None:
        """The limit that so many turns and such a usage have reached; the time is not checked here."""
        if self.turns is not None and turns >= self.turns:
            return Truncated("turns", f"{turns} of {self.turns} turns")
        if self.tokens is not None and (used := usage.input_tokens + usage.output_tokens) >= self.tokens:
            return Truncated("tokens", f"{used} of {self.tokens} tokens")
        if self.cost is not None and usage.cost is not None and usage.cost >= self.cost:
            return Truncated("cost", f"{usage.cost:g} of {self.cost:g}")
        return None


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How episodes are played: arguments of `play`, `rollouts` and adapters, and options of `ors eval`.

    The first line below each field is also the help of its option.
    """

    reward: Reduction
    """How to combine the rewards of the steps.

    "last", "sum", "max" or a function. There is no default in Python."""
    limits: EpisodeLimits = field(default_factory=EpisodeLimits)
    """When an episode is truncated."""
    truncated_reward: float | None = None
    """Reward of an episode that reaches a limit without one."""
    unscored_reward: float | None = None
    """Reward of an episode that ends without one, such as when the agent gives up or refuses."""
    failed_reward: Mapping[Party, float] = field(default_factory=dict)
    """Reward of an episode that failed, by who failed, whatever it earned; others have none."""
    system: str | None = None
    """System prompt."""
    nudge: str | None = None
    """Message sent after the first reply without a tool call; without it, that reply ends the episode."""
    parallel: bool = False
    """Run the tool calls of one reply at the same time."""
    agent_name: str = ""
    """Name of the agent in the records."""

    def __post_init__(self) -> None:
        reducer(self.reward)
        assert self.scoring

    @cached_property
    def scoring(self) -> Scoring:
        """What episodes without a reward get."""
        return Scoring(self.unscored_reward, self.truncated_reward, self.failed_reward)

    def score(self, outcome: Outcome, rewards: Iterable[float | None]) -> float | None:
        """What an episode with these rewards of its steps counts as; None if it is left out.

        Raises:
            Exception: the reduction raises, or its result is not a finite number.
        """
        given = [reward for reward in rewards if reward is not None]
        earned = None
        if given and not isinstance(outcome, Failed):
            earned = reducer(self.reward)(given)
            if not isfinite(earned):  # raises for None, and for text, which float() might take
                raise ValueError(f"{earned} is not a finite number")
            earned = float(earned)
        return self.scoring.score(outcome, earned)

    def components(self, outcome: Outcome, messages: Iterable[Message]) -> dict[str, float]:
        """The named rewards of an episode with these messages. A failed episode has none."""
        if isinstance(outcome, Failed):
            return {}
        steps = (each.components for each in messages if isinstance(each, ToolMessage) and each.metadata)
        return reduce_components(steps, self.reward)


class PlayArguments(TypedDict, total=False):
    """The fields of `Rules` as keyword arguments, for type checkers: `Rules` describes them."""

    reward: Required[Reduction]
    limits: EpisodeLimits
    truncated_reward: float | None
    unscored_reward: float | None
    failed_reward: Mapping[Party, float]
    system: str | None
    nudge: str | None
    parallel: bool
    agent_name: str


class RolloutArguments(PlayArguments, total=False):
    """Which episodes are played, and how many at once: arguments of `rollouts`, besides those of `play`."""

    samples: int
    """Episodes of each task. Of a sequence of tasks, all are played once before any is played again."""
    concurrency: int
    """Maximum episodes that run, or have ended and wait to be taken: 64 by default."""
    model_requests: int | None
    """Maximum replies that the agent works on at the same time. Waiting is not time of the episode."""
    retries: int
    """How often an episode restarts, in a new session, after an infrastructure failure."""
    skip: Container[EpisodeKey]
    """Keys of episodes that are not played: see `episode_key`."""
    secrets: Mapping[str, str] | None
    """Secrets for the environment."""
    keep_tasks: bool
    """Whether records keep tasks that are played by index, as the server lists them: one more request."""
    on_begin: Callable[[Any], object] | None
    """Called with a `RunningEpisode` when an attempt of an episode begins."""
    on_turn: Callable[[Any], object] | None
    """Called with a `RunningEpisode` after each reply of the agent and its calls."""
    on_end: Callable[[Any], object] | None
    """Called with the `EpisodeRecord` when an attempt ends. An error in a callback ends the rollouts."""
