"""`ors check` and `ors test`: does a server conform to the standard; is an environment fit to train on?"""

import os
import sys
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

import click

from ors import conformance, quality
from ors.cli.errors import Unreachable, WrongUsage, report_stream
from ors.cli.options.shared import (
    COUNT,
    TARGET,
    WHERE,
    Command,
    api_key,
    as_json,
    environment,
    secrets,
    traceback,
)
from ors.cli.output.printing import print_json
from ors.cli.targets.connect import completed, greet
from ors.cli.targets.process import served
from ors.cli.targets.resolve import as_url, built, environments, given_settings, words
from ors.errors import ServerFailed

SLOW_MINUTES = 18


@click.command(
    cls=Command,
    examples=[
        "ors check http://127.0.0.1:8080",
        "ors check ors.conformance.probe --verbose",
        "ors check http://127.0.0.1:8080 --only create --only rejoin --json",
    ],
)
@click.argument("where", metavar="URL|TARGET", type=TARGET, required=False)
@click.option(
    "--only", metavar="ID", multiple=True, help="Requirement to check, or the first part of its id."
)
@click.option(
    "--slow", is_flag=True, help=f"Also check pings and expiry, which takes {SLOW_MINUTES} minutes."
)
@click.option("--strict", is_flag=True, help="Treat SHOULD as MUST.")
@click.option("--verbose", "-v", is_flag=True, help="Also print the checks that passed.")
@click.option("--list", "list_only", is_flag=True, help="Only print the requirements.")
@environment
@api_key
@as_json
def check(where: str | None, strict: bool, verbose: bool, list_only: bool, as_json: bool, **how: Any) -> None:
    """Check any server against the Open Reward Standard.

    Some checks need the probe environment on the server: `ors serve ors.conformance.probe`. Checks that are
    not possible are reported as "not tried". The exit code is 1 if a MUST requirement fails.
    """
    if list_only:
        _print_requirements(as_json)
        return
    if where is None:
        raise click.UsageError("Missing argument 'URL|TARGET'.")
    at_once = [*words(given_settings()), "--grace-seconds", "0"]  # Ctrl-C waits for no call
    with ExitStack() as stack:
        url = as_url(where) or stack.enter_context(served(where, variant=at_once))
        report = _checked(url, **how, quiet=as_json)
    text = conformance.as_json(report) + "\n" if as_json else conformance.as_text(report, verbose=verbose)
    click.echo(text, nl=False, file=report_stream())
    if report.of("failed") if strict else not report.conforms:
        raise click.exceptions.Exit(1)


def _checked(
    url: str, only: tuple[str, ...], slow: bool, env: str | None, api_key: str | None, *, quiet: bool
) -> conformance.Report:
    headers = {"X-API-Key": api_key} if api_key else {}

    def show(progress: str) -> None:
        if not quiet and sys.stderr.isatty():
            click.echo(f"\r\x1b[K{progress}", nl=False, err=True)

    how: dict[str, Any] = {"slow": slow, "environment": env, "only": only, "headers": headers}
    try:
        return conformance.check(url, **how, on_result=lambda result: show(result.requirement.id))
    except conformance.Unreachable as error:
        raise Unreachable(str(error)) from None
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    finally:
        show("")


def _print_requirements(as_json: bool) -> None:
    known = conformance.requirements().values()
    if as_json:
        print_json([asdict(requirement) for requirement in known])
        return
    for requirement in known:
        click.echo(f"{requirement.level:6} {requirement.id:32} {requirement.text} [{requirement.source}]")


@click.command(
    "test",
    cls=Command,
    examples=[
        "ors test adder",
        "ors test adder --limit 20 --repeat 5 --json",
        "ors test http://127.0.0.1:8080 --env adder",
    ],
)
@WHERE
@click.option("--limit", "sample", type=COUNT, default=5, help="Tasks to open per split.")
@click.option("--steps", type=COUNT, default=10, help="Maximum calls per episode.")
@click.option("--repeat", type=COUNT, default=3, help="Episodes to compare per task.")
@click.option("--episodes", type=click.IntRange(min=20), default=50, help="Episodes to measure memory over.")
@click.option("--max-episodes", "most", type=COUNT, default=300, help="Maximum episodes in total.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0.1),
    default=60,
    help="Time limit in seconds of each listing, setup, prompt and call.",
)
@click.option("--seed", type=int, default=0, help="Random seed.")
@click.option("--strict", is_flag=True, help="Treat warnings as faults.")
@environment
@secrets
@traceback
@api_key
@as_json
def test_command(
    where: str,
    strict: bool,
    env: str | None,
    secret: tuple[tuple[str, str], ...],
    api_key: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Test whether an environment is fit to train on.

    Can tasks be listed, opened and torn down? Are rewards the same every time, and zero for doing nothing?
    Does an episode leave anything behind? A TARGET runs in this process, which allows more tests than a URL.
    An environment may have a classmethod solve(task_spec) that returns the calls of a perfect episode.
    """
    plan = quality.Plan(**how, secrets=dict(secret))
    with ExitStack() as stack:
        reports = _examined(where, env, api_key, plan, stack)
    text = quality.as_json(reports) if as_json else "\n".join(map(quality.as_text, reports))
    click.echo(text, nl=as_json, file=report_stream())
    if any(report.findings if strict else report.faults for report in reports):
        raise click.exceptions.Exit(1)


def _examined(
    where: str, env: str | None, api_key: str | None, plan: quality.Plan, stack: ExitStack
) -> list[quality.Report]:
    def show(name: str, what: str) -> None:
        click.echo(f"{name}: {what}", err=True)

    how: dict[str, Any] = {"environment": env, "api_key": api_key, "on_step": show}
    try:
        if url := as_url(where):
            if plan.traceback:
                raise WrongUsage("--traceback needs a TARGET: servers do not expose their source")
            greet(url, api_key)
            return quality.examine(url=url, plan=plan, **how)
        found = environments([where])
        built(found)  # reports an invalid environment in one line
        classes, secrets = {cls.name().lower(): cls for cls in found}, plan.secrets
        for name, cls in classes.items():
            if env is None or env.lower() == name:
                secrets = completed(cls.__name__, cls.required_secrets, secrets, local=True)
        # Another hash seed orders sets differently than in this process.
        seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
        elsewhere = stack.enter_context(served(where, PYTHONHASHSEED=seed))
        plan = replace(plan, secrets=secrets)
        return quality.examine(classes=classes, elsewhere=elsewhere, plan=plan, **how)
    except ServerFailed as error:
        raise Unreachable(str(error)) from None
    except ValueError as error:
        raise WrongUsage(str(error)) from None
