"""The agent of an evaluation."""

import asyncio
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ors import Environment, JSONObject
from ors.cli.errors import WrongUsage
from ors.cli.evaluation.plan import EvalPlan
from ors.cli.targets.connect import known_name
from ors.cli.targets.resolve import as_url, environments
from ors.rollouts import Agent, TaskRef
from ors.rollouts.agents import resolve
from ors.rollouts.agents.coding.table import CODING
from ors.rollouts.records import RunError, read_run


def agent_of(plan: EvalPlan) -> Agent:
    """Makes the agent of a plan.

    Raises:
        WrongUsage: there is no such agent, it has no such option, or it lacks a key.
        Unreachable: the gold agent's environment cannot be imported.
    """
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
    if kind == "replay":
        options["read_run"] = lambda run: read_run(run).episodes()
    if kind == "random":
        options.setdefault("seed", plan.tasks.seed)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # for an agent of one's own, module:object
    try:
        return resolve(plan.model, **options)
    except (ValueError, RunError) as error:
        raise WrongUsage(str(error)) from None


def _solution(plan: EvalPlan) -> dict[str, Any]:
    """Options of the gold agent: the environment's `solve`, and its tasks with their private fields."""
    if as_url(plan.target) is not None:
        raise WrongUsage("The gold agent needs a TARGET: it plays what the environment's solve() returns")
    cls = _class(environments([plan.target], plan.settings), plan.environment)
    solve = getattr(cls, "solve", None)
    # A method that is not bound to the class, such as a tool of that name, is no solution.
    if solve is None or inspect.isfunction(inspect.getattr_static(cls, "solve")):
        raise WrongUsage(f"{cls.__name__} has no classmethod solve(task_spec), which the gold agent plays")

    async def task_spec(task: TaskRef) -> JSONObject:
        found = await asyncio.to_thread(cls.get_task, str(task.split), int(task.index or 0))
        spec: JSONObject = await found if inspect.isawaitable(found) else found
        return spec

    return {"solve": solve, "task_spec": task_spec}


def _class(classes: Sequence[type[Environment]], name: str | None) -> type[Environment]:
    by_name = {cls.name().lower(): cls for cls in classes}
    return by_name[known_name(list(by_name), name)]
