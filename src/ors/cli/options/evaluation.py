"""Options of `ors eval`."""

from collections.abc import Container, Mapping
from dataclasses import asdict, fields
from math import isfinite
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click

from ors.cli.evaluation.plan import LIMITS, NOT_OFFERED, EvalPlan
from ors.cli.options.shared import JSON, F, Flags, add_flags, field_docs
from ors.rollouts import EpisodeLimits, Reduction, Rules
from ors.rollouts.episodes.outcome import Party
from ors.rollouts.episodes.rules import ReductionName


class _Finite(click.FloatRange):
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
RETRIED: tuple[Party, ...] = ("model", "environment", "infrastructure")


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

COMMON: Flags = (
    ("--split", {"multiple": True, "metavar": "NAME", "help": "Split; repeatable.  [default: the first]"}),
    ("--tasks", {
        "metavar": "INDICES", "help": "Indices of tasks, such as 0:100 or 0,3,7:9.  [default: all]",
    }),
    ("--limit", {"type": COUNT, "help": "Maximum tasks to play, chosen at random."}),
    ("--samples", {"type": COUNT, "default": 1, "show_default": True, "help": "Episodes of each task."}),
    ("--concurrency", {"type": COUNT, "default": 32, "show_default": True, "help": "Concurrent episodes."}),
    ("--max-total-tokens", {
        "type": COUNT, "help": "Stop the run at this many tokens of all its episodes; --resume continues.",
    }),
    ("--max-total-cost", {
        "type": POSITIVE, "help": "Stop the run at this cost of all its episodes; needs --prices.",
    }),
    ("--max-total-seconds", {"type": POSITIVE, "help": "Stop the run after this time."}),
    ("--fail-under", {"type": NUMBER, "help": "Exit with 1 if the mean reward is below this."}),
    ("--max-failed", {
        "type": _Finite(0, 1), "default": 0.2, "show_default": True,
        "help": "Exit with 3 if more than this share of the episodes failed.",
    }),
)  # fmt: skip

MODEL: Flags = (
    ("--base-url", {
        "metavar": "URL", "help": "Address of the model provider, such as http://127.0.0.1:8000/v1.",
    }),
    ("--temperature", {"type": _Finite(min=0), "help": "Sampling temperature."}),
    ("--model-seed", {"type": int, "help": "Seed for the model; each episode gets its own, made from it."}),
    ("--model-options", {
        "type": JSON, "help": "Further options of the agent: JSON or @file, such as "
        '{"reasoning_effort": "low", "top_p": 0.9, "max_tokens": 1000, "images": false}.',
    }),
    ("--prices", {
        "type": JSON, "help": "Prices of a million tokens: JSON or @file, such as "
        '{"input": 1.0, "output": 4.0, "cached": 0.1}, or an object of these by model.',
    }),
)  # fmt: skip

EPISODES: Flags = (
    ("--retries", {
        "type": click.IntRange(min=0), "default": 2, "show_default": True,
        "help": "Further attempts of an episode lost to an infrastructure failure.",
    }),
    ("--seed", {"type": int, "default": 0, "show_default": True, "help": "Seed of the choice by --limit."}),
)  # fmt: skip

RESUMING: Flags = (
    ("--retry", {
        "type": click.Choice(get_args(Party)), "multiple": True, "default": RETRIED, "show_default": True,
        "help": "With --resume: play episodes again that failed because of this; repeatable.",
    }),
    ("--allow-changed", {
        "is_flag": True, "help": "With --resume: continue with other code or parameters of the environment.",
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


def eval_flags(command: F) -> F:
    """All options of an evaluation but the agent, the run folder and those of the server."""
    episodes = (*_rule_flags(), *EPISODES)
    groups = {"Resuming": RESUMING, "Episodes": episodes, "Model": MODEL, "Options": COMMON}
    for title, flags in groups.items():
        command = add_flags(title, flags)(command)
    return command
