"""`ors check`: checks a server with the conformance suite."""

import sys
from dataclasses import asdict

import click

from ors import Limits, Server, conformance
from ors.cli.errors import Unreachable, WrongUsage, report_stream
from ors.cli.options.shared import TARGET, Command, api_key, as_json, environment
from ors.cli.output.printing import print_json
from ors.cli.targets.resolve import as_url, built, environments
from ors.quality.examination import while_serving

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
def check(
    where: str | None,
    only: tuple[str, ...],
    slow: bool,
    strict: bool,
    verbose: bool,
    list_only: bool,
    env: str | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """Check any server against the Open Reward Standard.

    Some checks need the probe environment on the server: `ors serve ors.conformance.probe`. Checks that are
    not possible are reported as "not tried". The exit code is 1 if a MUST requirement fails.
    """
    if list_only:
        _print_requirements(as_json)
        return
    if where is None:
        raise click.UsageError("Missing argument 'URL|TARGET'.")

    def work(url: str) -> conformance.Report:
        return _checked(url, only, slow, env, api_key, quiet=as_json)

    there = as_url(where)
    report = work(there) if there else while_serving(_server(where), work)
    text = conformance.as_json(report) + "\n" if as_json else conformance.as_text(report, verbose=verbose)
    click.echo(text, nl=False, file=report_stream())
    if report.of("failed") if strict else not report.conforms:
        raise click.exceptions.Exit(1)


def _server(target: str) -> Server:
    """Serves a TARGET; Ctrl-C does not wait for its calls."""
    return built(environments([target]), limits=Limits(grace_seconds=0))


def _checked(
    url: str, only: tuple[str, ...], slow: bool, env: str | None, api_key: str | None, *, quiet: bool
) -> conformance.Report:
    headers = {"X-API-Key": api_key} if api_key else {}
    shows = not quiet and sys.stderr.isatty()
    try:
        return conformance.check(
            url,
            slow=slow,
            environment=env,
            only=only,
            headers=headers,
            on_result=lambda result: _show(result.requirement.id) if shows else None,
        )
    except conformance.Unreachable as error:
        raise Unreachable(str(error)) from None
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    finally:
        if shows:
            _show("")


def _print_requirements(as_json: bool) -> None:
    known = conformance.requirements().values()
    if as_json:
        print_json([asdict(requirement) for requirement in known])
        return
    for requirement in known:
        click.echo(f"{requirement.level:6} {requirement.id:32} {requirement.text} [{requirement.source}]")


def _show(progress: str) -> None:
    click.echo(f"\r\x1b[K{progress}", nl=False, err=True)
