"""The plan of an evaluation: everything that decides its episodes, as run.json keeps it."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from ors.cli.errors import WrongUsage
from ors.cli.evaluation.task_choice import TaskChoice
from ors.rollouts import EpisodeLimits, Rules
from ors.rollouts.agents import Prices
from ors.rollouts.episodes.rules import ReductionName
from ors.rollouts.episodes.scoring import Scoring

LIMITS = EpisodeLimits(turns=100)
"""Limits of an episode of `ors eval`, unless others are given."""
NOT_OFFERED = ("agent_name", "failed_reward", "parallel")
"""Rules that are no options: the model is the name, failures have no reward, and calls run in turn."""


@dataclass(frozen=True, kw_only=True)
class EvalPlan(Rules):
    """Which agent plays which tasks, and how. `--resume` plays by the same plan."""

    target: str
    """URL or TARGET."""
    environment: str | None
    settings: tuple[str, ...] = ()
    """Parameters of a TARGET, as `--set` gives them."""
    model: str
    """The agent's name, such as "openai:gpt-5"."""
    base_url: str | None = None
    model_options: Mapping[str, Any] = field(default_factory=dict)
    prices: Prices | None = None
    tasks: TaskChoice = field(default_factory=TaskChoice)
    samples: int = 1
    retries: int = 2
    secrets: tuple[str, ...] = ()
    """Names of the secrets that the environment gets. Their values are never kept."""

    # The defaults of `ors eval`, where those of Python differ.
    reward: ReductionName = "sum"
    unscored_reward: float | None = 0.0
    truncated_reward: float | None = 0.0
    """None in runs of older versions, which counts as 0 too."""
    limits: EpisodeLimits = LIMITS

    def as_json(self) -> dict[str, Any]:
        """Value for run.json, without the logins of URLs."""
        kept = {name: value for name, value in asdict(self).items() if name not in NOT_OFFERED}
        return kept | {
            "target": _without_login(self.target),
            "base_url": None if self.base_url is None else _without_login(self.base_url),
        }

    @classmethod
    def from_json(cls, config: Mapping[str, Any], where: str) -> Self:
        """Reads the plan of a run.

        Raises:
            WrongUsage: the run is not one of `ors eval`.
        """
        try:
            return TypeAdapter(cls).validate_python(dict(config))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            text = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise WrongUsage(f"{where} is not a run of `ors eval` ({text})") from None

    def playing(self) -> dict[str, Any]:
        """Arguments of `rollouts` that come from the plan."""
        rules = {each.name: getattr(self, each.name) for each in fields(Rules)}
        # Records keep what the environment gave. What the rest counts as is said when the run is read.
        for each in fields(Scoring):
            del rules[each.name]
        return rules | {"samples": self.samples, "retries": self.retries, "agent_name": self.model}


def _without_login(url: str) -> str:
    return re.sub(r"(?<=://)[^/?#]*@", "", url)
