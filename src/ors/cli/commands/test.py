"""`ors test`: is an environment fit to train on?"""

import os
import threading
from contextlib import ExitStack
from typing import Any, Self

import click

from ors import quality
from ors.cli.connect import greet
from ors.cli.errors import Unreachable, Wrong
from ors.cli.options.shared import WHERE, Command, api_key, as_json, environment, secrets
from ors.cli.target_process import served
from ors.cli.targets import as_url, built, environments
from ors.errors import ServerFailed

QUIET_SECONDS = 2.0
"""Nobody needs to be told what takes less."""


@click.command(
    "test",
    cls=Command,
    examples=[
        "ors test adder",
        "ors test adder --sample 20 --repeat 5 --json",
        "ors test http://127.0.0.1:8080 --env adder",
    ],
)
@WHERE
@click.option(
    "--sample", type=click.IntRange(min=1), default=5, show_default=True, help="Tasks of each split to open."
)
@click.option(
    "--steps", type=click.IntRange(min=1), default=10, show_default=True, help="Most calls in an episode."
)
@click.option(
    "--repeat", type=click.IntRange(min=1), default=3, show_default=True, help="Plays to compare rewards of."
)
@click.option(
    "--episodes",
    type=click.IntRange(min=20),
    default=50,
    show_default=True,
    help="Plays to watch memory over.",
)
@click.option(
    "--patience",
    type=click.FloatRange(min=0.1),
    default=60,
    show_default=True,
    help="Seconds that a listing, a setup or a call may take.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of all that is chosen by chance.")
@click.option("--strict", is_flag=True, help="Take warnings for faults.")
@environment
@secrets
@api_key
@as_json
def test_command(
    where: str,
    sample: int,
    steps: int,
    repeat: int,
    episodes: int,
    patience: float,
    seed: int,
    strict: bool,
    env: str | None,
    secret: tuple[tuple[str, str], ...],
    api_key: str | None,
    as_json: bool,
) -> None:
    """Test whether an environment is fit to train on.

    Do tasks list, open and tear down? Are rewards the same every time, and earned by nobody who does nothing?
    Does an episode leave anything behind? A TARGET is run in this process, which shows more than a URL.
    An environment may have a classmethod solve(task_spec) that returns the calls of a perfect episode.
    """
    plan = quality.Plan(sample, steps, repeat, episodes, patience=patience, seed=seed, secrets=dict(secret))
    with ExitStack() as stack:
        told = stack.enter_context(_Told())
        how = {"environment": env, "api_key": api_key, "plan": plan, "on_step": told.step}
        reports = _examined(where, how, stack)
    click.echo(quality.as_json(reports) if as_json else "\n".join(map(quality.as_text, reports)), nl=as_json)
    if any(report.findings if strict else report.faults for report in reports):
        raise click.exceptions.Exit(1)


def _examined(where: str, how: dict[str, Any], stack: ExitStack) -> list[quality.Report]:
    try:
        if url := as_url(where):
            greet(url, how["api_key"])
            return quality.examine(url=url, **how)
        found = environments([where])
        built(found)  # says what is wrong with them in one line
        elsewhere = stack.enter_context(served(where, PYTHONHASHSEED=_other_seed()))
        classes = {cls.name().lower(): cls for cls in found}
        return quality.examine(classes=classes, elsewhere=elsewhere, **how)
    except ServerFailed as error:
        raise Unreachable(str(error)) from None
    except ValueError as error:
        raise Wrong(str(error)) from None


def _other_seed() -> str:
    """Another order of sets than in this process."""
    return "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"


class _Told:
    """What is being looked at, on standard error, once it takes a while."""

    def __init__(self) -> None:
        self._now = ""
        self._speaks = False
        self._timer = threading.Timer(QUIET_SECONDS, self._begin)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._timer.cancel()

    def step(self, name: str, what: str) -> None:
        """The next step begins."""
        self._now = f"{name}: {what}"
        if self._speaks:
            click.echo(self._now, err=True)

    def _begin(self) -> None:
        self._speaks = True
        click.echo(self._now, err=True)
