"""Options of `ors eval`."""

from collections.abc import Container, Mapping
from dataclasses import asdict, fields
from math import isfinite
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click

from ors.cli.evaluation.plan import LIMITS, NOT_OFFERED, EvalPlan
from ors.cli.options.shared import F, Flags, add_flags, field_docs
from ors.rollouts import EpisodeLimits, Reduction, Rules
from ors.rollouts.episodes.rules import ReductionName


class _Finite(click.FloatRange):
    """A number, neither "nan" nor "inf"."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


class _Number(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """The same without bounds: click would show a range without bounds as "x<=None"."""

    name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = click.FLOAT.convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


NUMBER = _Number()
POSITIVE = _Finite(min=0, min_open=True)
COUNT = click.IntRange(min=1)


class _Text(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """Text, or `@file` for the text of a file."""

    name = "TEXT|@FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text.startswith("@"):
            return text
        try:
            return Path(text[1:]).read_text(encoding="utf-8")
        except OSError as error:
            self.fail(f"{error.strerror}: {error.filename}", param, ctx)
        except UnicodeDecodeError:
            self.fail(f"{text[1:]} is not a text file", param, ctx)


TEXT = _Text()

TASKS: Flags = (
    ("--split", {"multiple": True, "metavar": "NAME", "help": "Split; repeatable.  [default: the first]"}),
    ("--tasks", {
        "metavar": "INDICES", "help": "Indices of tasks, such as 0:100 or 0,3,7:9.  [default: all]",
    }),
    ("--limit", {"type": COUNT, "help": "Maximum tasks to play, chosen at random."}),
    ("--seed", {"type": int, "default": 0, "show_default": True, "help": "Seed of the random choice."}),
    ("--samples", {"type": COUNT, "default": 1, "show_default": True, "help": "Episodes of each task."}),
)  # fmt: skip

AGENT: Flags = (
    ("--base-url", {
        "metavar": "URL", "help": "Address of the model provider, such as http://127.0.0.1:8000/v1.",
    }),
    ("--temperature", {"type": _Finite(min=0), "help": "Sampling temperature."}),
    ("--top-p", {"type": _Finite(0, 1), "help": "Nucleus sampling."}),
    ("--max-output-tokens", {"type": COUNT, "help": "Maximum tokens of one reply."}),
    ("--reasoning-effort", {"metavar": "LEVEL", "help": "Reasoning effort, such as low, medium or high."}),
    ("--model-seed", {"type": int, "help": "Seed for the model; each episode gets its own, made from it."}),
    ("--stop", {"multiple": True, "metavar": "TEXT", "help": "Text that ends a reply; repeatable."}),
    ("--model-timeout", {
        "type": POSITIVE, "metavar": "SECONDS", "help": "Time limit of one model request.  [default: 600]",
    }),
    ("--model-retries", {
        "type": click.IntRange(min=0), "help": "Further attempts of a model request.  [default: 8]",
    }),
    ("--no-images", {
        "is_flag": True, "help": "Replace images with a text placeholder, for text-only models.",
    }),
)  # fmt: skip

_RULES: dict[Any, dict[str, Any]] = {
    Reduction: {"type": click.Choice(get_args(ReductionName))},
    str | None: {"type": TEXT},
    float | None: {"type": NUMBER},
    bool: {"is_flag": True},
}
_LIMITS: dict[Any, dict[str, Any]] = {int | None: {"type": COUNT}, float | None: {"type": POSITIVE}}


def _rule_flags() -> Flags:
    """A flag for each rule of playing, and for each limit of an episode."""
    defaults = {each.name: each.default for each in fields(EvalPlan)}
    limits = _flags_of(EpisodeLimits, _LIMITS, asdict(LIMITS), "--max-")
    return (*limits, *_flags_of(Rules, _RULES, defaults, "--", without=(*NOT_OFFERED, "limits")))


def _flags_of(
    kind: type,
    types: Mapping[Any, dict[str, Any]],
    defaults: Mapping[str, Any],
    prefix: str,
    without: Container[str] = (),
) -> Flags:
    docs = field_docs(kind)
    hints = {name: hint for name, hint in get_type_hints(kind).items() if name not in without}
    return tuple(
        (
            prefix + name.replace("_", "-"),
            {**types[hint], "default": defaults[name], "show_default": True, "help": docs.get(name, "")},
        )
        for name, hint in hints.items()
    )


def rules_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The rules that these options choose, as arguments of `EvalPlan`."""
    limits = {each.name: given[f"max_{each.name}"] for each in fields(EpisodeLimits)}
    chosen = {each.name: given[each.name] for each in fields(Rules) if each.name in given}
    return {**chosen, "limits": EpisodeLimits(**limits)}


PRICES: Flags = (
    ("--price-input", {"type": POSITIVE, "help": "Price of a million input tokens."}),
    ("--price-cached", {"type": POSITIVE, "help": "Price of a million cached tokens.  [default: as input]"}),
    ("--price-output", {"type": POSITIVE, "help": "Price of a million output tokens."}),
    ("--prices", {
        "type": click.Path(exists=True, dir_okay=False, path_type=Path), "metavar": "FILE",
        "help": 'Prices by model, as JSON: {"openai:NAME": {"input": 1.0, "output": 4.0}}.',
    }),
)  # fmt: skip

RUNNING: Flags = (
    ("--concurrency", {"type": COUNT, "default": 32, "show_default": True, "help": "Concurrent episodes."}),
    ("--model-requests", {"type": COUNT, "help": "Concurrent requests to the model.  [default: no limit]"}),
    ("--retries", {
        "type": click.IntRange(min=0), "default": 2, "show_default": True,
        "help": "Further attempts of an episode that failed for infrastructure.",
    }),
    ("--fail-under", {"type": NUMBER, "help": "Exit with 1 if the mean reward is below this."}),
    ("--max-failed", {
        "type": _Finite(0, 1), "default": 0.2, "show_default": True,
        "help": "Exit with 3 if more than this share of the episodes failed.",
    }),
    ("--stop-after", {
        "type": COUNT, "default": 20, "show_default": True, "help": "Stop after this many failures in a row.",
    }),
)  # fmt: skip


def eval_flags(command: F) -> F:
    """All options of an evaluation but those of the run folder."""
    groups = {
        "Running": RUNNING,
        "Prices": PRICES,
        "Episodes": _rule_flags(),
        "Agent": AGENT,
        "Tasks": TASKS,
    }
    for title, flags in groups.items():
        command = add_flags(title, flags)(command)
    return command
