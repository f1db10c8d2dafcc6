"""Options of `ors eval`."""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, fields
from math import isfinite
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click

from ors.cli.evaluation.plan import LIMITS, NOT_OFFERED, EvalPlan
from ors.cli.options.shared import COUNT, INDEX, JSON, Parsed, stacked, under
from ors.rollouts import EpisodeLimits, Reduction, Rules
from ors.rollouts.episodes.outcome import Party
from ors.rollouts.episodes.rules import ReductionName


class _Finite(click.FloatRange):
    """A finite number, within bounds or without."""

    name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number

    def _describe_range(self) -> str:
        # click would show "x<=None".
        return "" if self.min is None and self.max is None else super()._describe_range()


def _text(given: str) -> str:
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{given[1:]} is not a text file") from None


NUMBER = _Finite()
POSITIVE = _Finite(min=0, min_open=True)
TEXT = Parsed("TEXT|@FILE", _text)
"""Text, or `@file` for the text of a file."""
RETRIED: tuple[Party, ...] = ("model", "environment", "infrastructure")

limit, model, episode, resuming = map(under, ("Limits of the run", "Model", "Episodes", "Resuming"))

COMMON = (
    click.option("--split", multiple=True, metavar="NAME", help="Split; repeatable.  [default: the first]"),
    click.option("--tasks", metavar="INDICES", help="Task indices: 0:100, or 0,3,7:9.  [default: all]"),
    click.option("--limit", type=COUNT, help="Maximum number of tasks, chosen at random (--seed)."),
    click.option("--samples", type=COUNT, default=1, help="Episodes of each task."),
    click.option("--concurrency", type=COUNT, default=32, help="Concurrent episodes."),
    click.option("--fail-under", type=NUMBER, help="Exit with 1 if the mean reward is below this."),
)
RUN_LIMITS = (
    limit(
        "--max-total-tokens",
        type=COUNT,
        help="Stop the run after this many tokens in total; --resume continues it.",
    ),
    limit(
        "--max-total-cost",
        type=POSITIVE,
        help="Stop the run at this total cost; needs --prices.",
    ),
    limit("--max-total-seconds", type=POSITIVE, help="Stop the run after this time."),
    limit(
        "--max-failed",
        type=_Finite(0, 1),
        default=0.2,
        help="Exit with 3 if more than this share of the episodes failed.",
    ),
)
MODEL = (
    model(
        "--base-url", metavar="URL", help="Base URL of the model provider, such as http://127.0.0.1:8000/v1."
    ),
    model("--temperature", type=_Finite(min=0), help="Sampling temperature."),
    model("--model-seed", type=int, help="Seed for the model; each episode derives its own from it."),
    model(
        "--model-options",
        type=JSON,
        help="Further options of the agent: JSON or @file, such as "
        '{"reasoning_effort": "low", "top_p": 0.9, "max_tokens": 1000, "images": false}.',
    ),
    model(
        "--prices",
        type=JSON,
        help="Prices per million tokens: JSON or @file, such as "
        '{"input": 1.0, "output": 4.0, "cached": 0.1}, or one such object per model.',
    ),
)
EPISODES = (
    episode(
        "--retries",
        type=INDEX,
        default=2,
        help="Retries of an episode lost to an infrastructure failure.",
    ),
    episode("--seed", type=int, default=0, help="Seed for --limit."),
)
RESUMING = (
    resuming(
        "--retry",
        type=click.Choice(get_args(Party)),
        multiple=True,
        default=RETRIED,
        help="With --resume: play episodes again that failed for this reason; repeatable.",
    ),
    resuming(
        "--allow-changed",
        is_flag=True,
        help="With --resume: continue even if the environment's code or parameters have changed.",
    ),
)

_TYPES: dict[Any, Any] = {
    Reduction: click.Choice(get_args(ReductionName)),
    str | None: TEXT,
}


def _flags_of(kind: type, prefix: str, defaults: Mapping[str, Any], number: Any) -> list[Any]:
    """An option for each field of `kind`; the first line of its docstring is the help."""
    docs, types = _docs(kind), {**_TYPES, int | None: COUNT, float | None: number}
    return [
        episode(
            prefix + name.replace("_", "-"), type=types[hint], default=defaults[name], help=docs.get(name, "")
        )
        for name, hint in get_type_hints(kind).items()
        if name not in (*NOT_OFFERED, "limits")
    ]


def _docs(kind: type) -> dict[str, str]:
    """First line of each field's docstring; empty if the source is not installed."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except OSError:
        return {}
    assert isinstance(body, ast.ClassDef)
    found = {}
    for each, below in zip(body.body, body.body[1:], strict=False):
        match each, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = text.partition("\n")[0]
    return found


def rules_of(given: Mapping[str, Any]) -> dict[str, Any]:
    limits = {each.name: given[f"max_{each.name}"] for each in fields(EpisodeLimits)}
    chosen = {each.name: given[each.name] for each in fields(Rules) if each.name in given}
    return {**chosen, "limits": EpisodeLimits(**limits)}


RULES = (
    *_flags_of(EpisodeLimits, "--max-", asdict(LIMITS), POSITIVE),
    *_flags_of(Rules, "--", {each.name: each.default for each in fields(EvalPlan)}, NUMBER),
)
eval_flags = stacked(*COMMON, *RUN_LIMITS, *MODEL, *RULES, *EPISODES, *RESUMING)
"""All options of an evaluation but the agent, the run folder and those of the server."""
