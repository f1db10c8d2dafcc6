"""`ors route`: puts several servers behind one address."""

from collections.abc import Sequence
from contextlib import closing
from urllib.parse import urlsplit

import click

from ors import Limits
from ors.cli.errors import WrongUsage
from ors.cli.options.access import Listening, check_exposure, listen_flags
from ors.cli.options.shared import Command, address_flags, api_key, gathered, log_flags
from ors.cli.output import logging as logs
from ors.cli.targets.resolve import as_url
from ors.cluster import RouterServer, haproxy, nginx
from ors.server.identity import MAX_SLOT

PLAIN = "--print supports only http://HOST:PORT, not {url}; `ors route` itself supports both"


@click.command(
    cls=Command,
    examples=[
        "ors route --to http://10.0.0.1:8080 --to http://10.0.0.2:8080 --print nginx",
        "ors route --to 10.0.0.1:8080 --to 7=10.0.0.2:8080 --print haproxy",
    ],
)
@click.option(
    "--to",
    "servers",
    multiple=True,
    metavar="[SLOT=]URL",
    help="Server to route to, started with `ors serve --slot`. Each needs its own slot. Repeatable.",
)
@address_flags
@click.option(
    "--print",
    "printed",
    type=click.Choice(["haproxy", "nginx"]),
    help="Print a proxy configuration that routes the same way, and exit. Slots count from 0 unless given.",
)
@click.option(
    "--grace-seconds",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    help="Time for open streams at shutdown; then clients reconnect through another router.",
)
@click.option(
    "--connections",
    type=click.IntRange(1),
    default=Limits().connections,
    show_default=True,
    help="Most open connections, if the system allows as many files; further ones get 503.",
)
@log_flags
@listen_flags
@api_key
@gathered(listening=Listening)
def route(
    servers: Sequence[str],
    host: str,
    port: int,
    printed: str | None,
    grace_seconds: float,
    connections: int,
    log_level: str,
    log_json: bool,
    listening: Listening,
    api_key: str | None,
) -> None:
    """Put several servers behind one address.

    The router keeps no state: the session id names the server. Any number of routers may run at the same
    time, and a router that crashes loses no session.
    """
    found = _servers(servers)
    if printed is not None:
        click.echo(_configuration(printed, found, host, port))
        return
    check_exposure(host, bool(api_key or listening.insecure), "Pass the servers' key as --api-key")
    runner = RouterServer(
        list(found.values()),
        host,
        port,
        Limits(grace_seconds=grace_seconds, connections=connections),
        api_key or "",
        lambda url: click.echo(f"Routing on {url} (stop with Ctrl-C)"),
        cors_origins=listening.cors_origin,
        ssl_certfile=listening.ssl_certfile,
        ssl_keyfile=listening.ssl_keyfile,
    )
    with closing(logs.configure(log_level, log_json)):
        runner.run()


def _configuration(kind: str, servers: dict[int, str], host: str, port: int) -> str:
    for url in servers.values():
        if urlsplit(url).scheme != "http" or urlsplit(url).path:
            raise WrongUsage(PLAIN.format(url=url))
    listen = f"{'*' if host == '0.0.0.0' else f'[{host}]' if ':' in host else host}:{port}"
    return haproxy(servers, listen) if kind == "haproxy" else nginx(servers, listen)


def _servers(words: Sequence[str]) -> dict[int, str]:
    if not words:
        raise WrongUsage("No server is given: ors route --to URL --to URL")
    found: dict[int, str] = {}
    for number, word in enumerate(words):
        slot, equals, place = word.partition("=") if word.partition("=")[0].isdecimal() else ("", "", word)
        where, url = int(slot) if equals else number, _url(place)
        if where > MAX_SLOT:
            raise WrongUsage(f"--to {word}: slots go from 0 to {MAX_SLOT}")
        if where in found or url in found.values():
            raise WrongUsage(f"--to {word}: that slot or URL is given twice")
        found[where] = url
    return found


def _url(place: str) -> str:
    url = as_url(place)
    try:
        parts = urlsplit(url or "")
        fine = parts.port != 0 and bool((parts.hostname or "").encode("idna"))
    except ValueError:  # a port over 65535, or an invalid host name
        fine = False
    if url is None or not fine:
        raise WrongUsage(
            f"--to: {place!r} is not a URL with a host and a port up to 65535, such as http://10.0.0.1:8080"
        )
    return url
