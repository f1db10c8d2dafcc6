"""`ors route`: puts several servers behind one address."""

from collections.abc import Sequence
from contextlib import closing
from urllib.parse import urlsplit

import click

from ors import Limits
from ors.cli.errors import WrongUsage
from ors.cli.options.listening import Listening, check_exposure, listen_flags, listener
from ors.cli.options.shared import Command, address_flags, api_key, gathered, log_flags
from ors.cli.output import logging as logs
from ors.cli.targets.resolve import as_url
from ors.cluster import RouterServer


@click.command(
    cls=Command,
    examples=["ors route --to http://10.0.0.1:8080 --to http://10.0.0.2:8080"],
)
@click.option(
    "--to",
    "servers",
    multiple=True,
    metavar="URL",
    help="Server to route to, started with `ors serve --slot`. Each needs its own slot. Repeatable.",
)
@address_flags
@click.option(
    "--grace-seconds",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    help="Time for open streams at shutdown; then clients reconnect through another router.",
)
@log_flags
@listen_flags
@api_key
@gathered(listening=Listening)
def route(
    servers: Sequence[str],
    host: str,
    port: int,
    grace_seconds: float,
    log_level: str,
    log_json: bool,
    listening: Listening,
    api_key: str | None,
) -> None:
    """Put several servers behind one address.

    The router keeps no state: the session id names the server. Any number of routers may run at the same
    time, and a router that crashes loses no session.
    """
    urls = _urls(servers)
    check_exposure(host, bool(api_key or listening.insecure), "Pass the servers' key as --api-key")
    runner = RouterServer(
        urls,
        host,
        port,
        Limits(grace_seconds=grace_seconds),
        api_key or "",
        lambda url: click.echo(f"Routing on {url} (stop with Ctrl-C)"),
        cors_origins=listening.cors_origin,
        ssl_certfile=listening.ssl_certfile,
        ssl_keyfile=listening.ssl_keyfile,
    )
    with closing(logs.configure(log_level, log_json)):
        runner.run(sockets=[listener(host, port)])


def _urls(words: Sequence[str]) -> list[str]:
    if not words:
        raise WrongUsage("No server is given: ors route --to URL --to URL")
    found: list[str] = []
    for word in words:
        url = _url(word)
        if url in found:
            raise WrongUsage(f"--to {word}: this URL is given twice")
        found.append(url)
    return found


def _url(word: str) -> str:
    url = as_url(word)
    try:
        parts = urlsplit(url or "")
        fine = parts.port != 0 and bool((parts.hostname or "").encode("idna"))
    except ValueError:  # a port over 65535, or an invalid host name
        fine = False
    if url is None or not fine:
        raise WrongUsage(
            f"--to: {word!r} is not a URL with a host and a port up to 65535, such as http://10.0.0.1:8080"
        )
    return url
