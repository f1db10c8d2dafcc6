"""`ors inspect`: shows a server in the browser."""

import os
import socket
import webbrowser
from types import FrameType

import click
import uvicorn

from ors.cli.errors import WrongUsage
from ors.cli.options.shared import WHERE, Command, api_key
from ors.cli.sockets import listener
from ors.cli.targets.resolve import as_url, built, environments
from ors.client import ASGITransport, Transport, http_transport
from ors.inspector import StandIn

HOST = "127.0.0.1"
STOP_SECONDS = 1


@click.command(
    "inspect", cls=Command, examples=["ors inspect adder", "ors inspect http://127.0.0.1:8080 --port 8090"]
)
@WHERE
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Local port of the page; 0 takes any free port.",
    show_default=True,
)
@click.option("--open", "opening", is_flag=True, help="Open the page in a browser.")
@api_key
def inspect_command(where: str, port: int, opening: bool, api_key: str | None) -> None:
    """Look at a server in a browser: environments, tasks and sessions. Play episodes there.

    This command serves the page on this machine and forwards its requests to the server, with the API key.
    The page works only at the printed address, which contains a token. Servers that `ors serve` runs on
    loopback have their own page at /-/.
    """
    url, transport = _reached(where)
    key = api_key or os.environ.get("ORS_API_KEY")
    runner = _PageServer(StandIn(url, transport, key), where, opening)
    runner.run(sockets=[listener(HOST, port)])


def _reached(where: str) -> tuple[str, Transport]:
    url = as_url(where)
    if url is None:
        return "", ASGITransport(built(environments([where]), inspector=True).app)
    try:
        return url, http_transport(url)
    except ValueError as error:
        raise WrongUsage(str(error)) from None


class _PageServer(uvicorn.Server):
    """uvicorn that prints the address of the page and does not wait for streams when it stops."""

    def __init__(self, app: StandIn, where: str, opening: bool) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=HOST,
                access_log=False,
                log_level="critical",
                proxy_headers=False,
                timeout_graceful_shutdown=STOP_SECONDS,
                ws="none",
            )
        )
        self._token = app.token
        self._where = where
        self._opening = opening

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stops at a signal, without an error."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens and prints the address."""
        await super().startup(sockets)
        if not self.started or not sockets:
            return
        url = f"http://{HOST}:{sockets[0].getsockname()[1]}/-/?token={self._token}"
        click.echo(f"Look at {self._where} on {url} (stop with Ctrl-C)")
        if self._opening:
            webbrowser.open(url)
