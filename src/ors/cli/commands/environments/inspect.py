"""`ors inspect`: shows a server in the browser."""

import os

import click

from ors.cli.errors import WrongUsage
from ors.cli.options.shared import WHERE, Command, api_key
from ors.cli.page_server import page_flags, serve_page
from ors.cli.targets.resolve import as_url, built, environments
from ors.client import ASGITransport, Transport, http_transport
from ors.inspector import StandIn


@click.command(
    "inspect", cls=Command, examples=["ors inspect adder", "ors inspect http://127.0.0.1:8080 --port 8090"]
)
@WHERE
@page_flags
@api_key
def inspect_command(where: str, port: int, opening: bool, api_key: str | None) -> None:
    """Look at a server in a browser: environments, tasks and sessions. Play episodes there.

    This command serves the page on this machine and forwards its requests to the server, with the API key.
    The page works only at the printed address, which contains a token. Servers that `ors serve` runs on
    loopback have their own page at /-/.
    """
    url, transport = _reached(where)
    key = api_key or os.environ.get("ORS_API_KEY")
    serve_page(StandIn(url, transport, key), where, port, opening)


def _reached(where: str) -> tuple[str, Transport]:
    url = as_url(where)
    if url is None:
        return "", ASGITransport(built(environments([where]), inspector=True, return_errors="line").app)
    try:
        return url, http_transport(url)
    except ValueError as error:
        raise WrongUsage(str(error)) from None
