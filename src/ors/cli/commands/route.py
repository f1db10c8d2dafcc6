"""`ors route`: several servers behind one address."""

from collections.abc import Sequence
from contextlib import closing
from urllib.parse import urlsplit

import click

from ors import Limits
from ors.cli import logging as logs
from ors.cli.errors import Wrong
from ors.cli.options.shared import Command, api_key, log_flags
from ors.cli.options.workers import LAST_SLOT
from ors.cli.targets import as_url
from ors.cluster import RouterServer, haproxy, nginx
from ors.server import is_loopback

CLOSED = (
    "On {host}, anyone who can reach this machine could list all tasks with their answers and run the tools: "
    "give the servers' key as --api-key, or add --insecure if that is intended"
)
PLAIN = "--print can route to http://HOST:PORT only, not to {url}; `ors route` itself can"


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
    help="A server, started with its own `ors serve --slot`. Repeatable.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port to listen on; 0 takes any free one.",
)
@click.option(
    "--print",
    "printed",
    type=click.Choice(["haproxy", "nginx"]),
    help="Print a configuration that routes in the same way, and exit. Slots count from 0 unless given.",
)
@click.option(
    "--grace-seconds",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    help="On shutdown, open streams may go on for this long; then clients reconnect through another router.",
)
@click.option(
    "--connections",
    type=click.IntRange(1),
    default=Limits().connections,
    show_default=True,
    help="Connections at once, if the limit of open files allows; further ones get 503.",
)
@log_flags
@click.option("--insecure", is_flag=True, help="Listen on addresses other than loopback without a key.")
@click.option("--cors-origin", multiple=True, metavar="ORIGIN", help="Web page that may call from a browser.")
@click.option("--ssl-certfile", type=click.Path(exists=True, dir_okay=False), help="Certificate, for https.")
@click.option(
    "--ssl-keyfile", type=click.Path(exists=True, dir_okay=False), help="Private key of the certificate."
)
@api_key
def route(
    servers: Sequence[str],
    host: str,
    port: int,
    printed: str | None,
    grace_seconds: float,
    connections: int,
    log_level: str,
    log_json: bool,
    insecure: bool,
    cors_origin: Sequence[str],
    ssl_certfile: str | None,
    ssl_keyfile: str | None,
    api_key: str | None,
) -> None:
    """Put several servers behind one address.

    The router holds no state: the session id names the server. Any number of routers may run side by side,
    and the death of one loses no session.
    """
    found = _servers(servers)
    if printed is not None:
        click.echo(_configuration(printed, found, host, port))
        return
    if not (is_loopback(host) or api_key or insecure):
        raise Wrong(CLOSED.format(host=host))
    runner = RouterServer(
        list(found.values()),
        host,
        port,
        Limits(grace_seconds=grace_seconds, connections=connections),
        api_key or "",
        _announce,
        cors_origins=cors_origin,
        ssl_certfile=ssl_certfile,
        ssl_keyfile=ssl_keyfile,
    )
    with closing(logs.configure(log_level, log_json)):
        runner.run()


def _configuration(kind: str, servers: dict[int, str], host: str, port: int) -> str:
    for url in servers.values():
        if urlsplit(url).scheme != "http" or urlsplit(url).path:
            raise Wrong(PLAIN.format(url=url))
    listen = f"{'*' if host == '0.0.0.0' else f'[{host}]' if ':' in host else host}:{port}"
    return haproxy(servers, listen) if kind == "haproxy" else nginx(servers, listen)


def _servers(words: Sequence[str]) -> dict[int, str]:
    if not words:
        raise Wrong("No server is given: ors route --to URL --to URL")
    found: dict[int, str] = {}
    for number, word in enumerate(words):
        slot, equals, place = word.partition("=") if word.partition("=")[0].isdecimal() else ("", "", word)
        where, url = int(slot) if equals else number, _url(place)
        if where > LAST_SLOT:
            raise Wrong(f"--to {word}: slots go from 0 to {LAST_SLOT}")
        if where in found or url in found.values():
            raise Wrong(f"--to {word}: that slot or URL is given twice")
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
        raise Wrong(
            f"--to: {place!r} is not a URL with a host and a port up to 65535: try http://10.0.0.1:8080"
        )
    return url


def _announce(url: str) -> None:
    click.echo(f"Routing on {url} (stop with Ctrl-C)")
