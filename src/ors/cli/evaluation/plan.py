"""The plan of an evaluation, as run.json keeps it, with its tasks and its agent."""

import asyncio
import inspect
import random
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from ors import Environment, JSONObject
from ors.cli.errors import WrongUsage
from ors.cli.targets.connect import known_name
from ors.cli.targets.resolve import as_url, environments
from ors.client import AsyncEnvironment
from ors.rollouts import Agent, EpisodeLimits, Rules, TaskRef
from ors.rollouts.agents import Prices, resolve
from ors.rollouts.agents.coding.table import CODING
from ors.rollouts.episodes.rules import ReductionName
from ors.rollouts.episodes.scoring import Scoring

LIMITS = EpisodeLimits(turns=100)
"""Limits of an episode of `ors eval`, unless others are given."""
NOT_OFFERED = ("agent_name", "failed_reward", "parallel")
"""Rules that are no options: the model is the name, failures have no reward, and calls run in turn."""


@dataclass(frozen=True)
class TaskChoice:
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
            given = f"--tasks {self.indices} selects no task" if self.indices else "There is no task to play"
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
    """Reads indices and slices of `count` tasks, such as "0,3,7:9"."""
    found: dict[int, None] = {}
    for part in text.split(","):
        try:
            bounds = [int(number) if number.strip() else None for number in part.split(":")]
            if len(bounds) > 3 or (len(bounds) == 1 and bounds[0] is None):
                raise ValueError
            chosen = [bounds[0]] if len(bounds) == 1 else range(count)[slice(*bounds)]
        except ValueError:
            raise WrongUsage(
                f"--tasks {text!r} is not valid: give indices like 0:100, 5 or 0,3,7:9"
            ) from None
        found |= dict.fromkeys(index for index in chosen if index is not None)
    return list(found)


@dataclass(frozen=True, kw_only=True)
class EvalPlan(Rules):
    """Which agent plays which tasks, and how. `--resume` plays by the same plan."""

    target: str
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


def agent_of(plan: EvalPlan) -> Agent:
    kind = plan.model.partition(":")[0]
    options: dict[str, Any] = dict(plan.model_options)
    if plan.base_url is not None:
        options["base_url"] = plan.base_url
    if plan.prices is not None:
        options["prices"] = plan.prices
    if kind in CODING and (plan.limits.tokens is not None or plan.limits.cost is not None):
        raise WrongUsage(f"{kind} reports its tokens when it ends: leave out --max-tokens and --max-cost")
    if kind == "gold":
        options |= _solution(plan)
    if kind == "random":
        options.setdefault("seed", plan.tasks.seed)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # for an agent of one's own, module:object
    try:
        return resolve(plan.model, **options)
    except ValueError as error:
        raise WrongUsage(str(error)) from None


def _solution(plan: EvalPlan) -> dict[str, Any]:
    """Options of the gold agent: the environment's `solve`, and its tasks with their private fields."""
    if as_url(plan.target) is not None:
        raise WrongUsage("The gold agent needs a TARGET: it plays what the environment's solve() returns")
    cls = _class(environments([plan.target], plan.settings), plan.environment)
    solve = getattr(cls, "solve", None)
    # A method that is not bound to the class, such as a tool of that name, is no solution.
    if solve is None or inspect.isfunction(inspect.getattr_static(cls, "solve")):
        raise WrongUsage(f"{cls.__name__} has no classmethod solve(task_spec), which the gold agent needs")

    async def task_spec(task: TaskRef) -> JSONObject:
        found = await asyncio.to_thread(cls.get_task, str(task.split), int(task.index or 0))
        spec: JSONObject = await found if inspect.isawaitable(found) else found
        return spec

    return {"solve": solve, "task_spec": task_spec}


def _class(classes: Sequence[type[Environment]], name: str | None) -> type[Environment]:
    by_name = {cls.name().lower(): cls for cls in classes}
    return by_name[known_name(list(by_name), name)]
