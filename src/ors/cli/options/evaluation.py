"""Options of `ors eval`."""

from math import isfinite
from pathlib import Path
from typing import Any

import click

from ors.cli.options.shared import F, Flags, add_flags


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
    ("--limit", {"type": COUNT, "help": "Most tasks to play, chosen at random among these."}),
    ("--seed", {"type": int, "default": 0, "show_default": True, "help": "Seed of the random choice."}),
    ("--samples", {"type": COUNT, "default": 1, "show_default": True, "help": "Episodes of each task."}),
)  # fmt: skip

AGENT: Flags = (
    ("--base-url", {
        "metavar": "URL", "help": "Address of the model provider, such as http://127.0.0.1:8000/v1.",
    }),
    ("--system", {"type": TEXT, "help": "System prompt."}),
    ("--temperature", {"type": _Finite(min=0), "help": "Sampling temperature."}),
    ("--top-p", {"type": _Finite(0, 1), "help": "Nucleus sampling."}),
    ("--max-output-tokens", {"type": COUNT, "help": "Most tokens of one reply."}),
    ("--reasoning-effort", {"metavar": "LEVEL", "help": "Reasoning effort, such as low, medium or high."}),
    ("--model-seed", {"type": int, "help": "Seed for the model; each episode gets its own, made from it."}),
    ("--stop", {"multiple": True, "metavar": "TEXT", "help": "Text that ends a reply; repeatable."}),
    ("--model-timeout", {
        "type": POSITIVE, "metavar": "SECONDS", "help": "Time limit of one model request.  [default: 600]",
    }),
    ("--model-retries", {
        "type": click.IntRange(min=0), "help": "Further attempts of a model request.  [default: 8]",
    }),
    ("--no-images", {"is_flag": True, "help": "Name images in text, for models that do not take them."}),
    ("--nudge", {"type": TEXT, "help": "Answer the first reply without a tool call with this text."}),
    ("--parallel", {"is_flag": True, "help": "Run the tool calls of one reply at the same time."}),
)  # fmt: skip

LIMITS: Flags = (
    ("--max-turns", {
        "type": COUNT, "default": 100, "show_default": True, "help": "Most replies of the agent.",
    }),
    ("--max-tokens", {"type": COUNT, "help": "Most tokens of an episode, input and output."}),
    ("--max-cost", {"type": POSITIVE, "help": "Highest cost of an episode; needs prices."}),
    ("--max-seconds", {"type": POSITIVE, "help": "Longest time of an episode."}),
    ("--reward", {
        "type": click.Choice(["last", "sum", "max"]), "default": "sum", "show_default": True,
        "help": "How the rewards of the steps become one.",
    }),
    ("--unscored-reward", {
        "type": NUMBER, "default": 0.0, "show_default": True,
        "help": "What episodes count as that end without a reward, such as when the agent gives up.",
    }),
    ("--truncated-reward", {
        "type": NUMBER, "default": 0.0, "show_default": True,
        "help": "What episodes count as that reach a limit without a reward.",
    }),
)  # fmt: skip

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
        "Limits and rewards": LIMITS,
        "Agent": AGENT,
        "Tasks": TASKS,
    }
    for title, flags in groups.items():
        command = add_flags(title, flags)(command)
    return command
