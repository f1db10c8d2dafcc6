"""`ors inspect` and `ors view`: a server, or recorded runs, in a browser."""

import os
import socket
import webbrowser
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import click
import uvicorn

from ors.cli.errors import wrong_usage
from ors.cli.options.serving import listener
from ors.cli.options.shared import EXISTING_FOLDER, PORT, WHERE, Command, api_key, stacked
from ors.cli.targets.resolve import as_url, built, environments
from ors.client import ASGITransport, http_transport
from ors.inspector import InspectorProxy, RunsApi

HOST = "127.0.0.1"
STOP_SECONDS = 1
REDIRECT = (
    '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
    '<meta http-equiv="refresh" content="0;url={url}"><title>ors</title><a href="{url}">Open the page</a>\n'
)


page_flags = stacked(
    click.option("--port", type=PORT, default=0, help="Local port of the page; 0 picks a free one."),
    click.option("--open", "opening", is_flag=True, help="Open the page in a browser."),
)


def serve_page(app: InspectorProxy, what: str, port: int, opening: bool) -> None:
    """Serves the page until a signal; prints its address, and opens it in a browser if asked to."""

    def started(url: str) -> None:
        click.echo(f"Look at {what} on {url} (stop with Ctrl-C)")
        if folder is not None:
            # By a file: all users see the browser's command line, but not the file.
            page = Path(folder, "open.html")
            page.touch(0o600)
            page.write_text(REDIRECT.format(url=url))
            webbrowser.open(page.as_uri())

    with TemporaryDirectory(prefix="ors-") if opening else nullcontext() as folder:
        _PageServer(app, started).run(sockets=[listener(HOST, port)])


class _PageServer(uvicorn.Server):
    """uvicorn that prints the address of the page and does not wait for streams when it stops."""

    def __init__(self, app: InspectorProxy, on_start: Callable[[str], None]) -> None:
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
        self._on_start = on_start

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            self._on_start(f"http://{HOST}:{sockets[0].getsockname()[1]}/-/?token={self._token}")


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
    url, key = as_url(where), api_key or os.environ.get("ORS_API_KEY")
    if url is None:
        server = built(environments([where]), inspector=True, return_errors="line")
        serve_page(InspectorProxy("", ASGITransport(server.app), key), where, port, opening)
        return
    with wrong_usage(ValueError):
        transport = http_transport(url)
    serve_page(InspectorProxy(url, transport, key), where, port, opening)


@click.command("view", cls=Command, examples=["ors view runs", "ors view runs/first --port 8090"])
@click.argument("folder", metavar="FOLDER", type=EXISTING_FOLDER)
@page_flags
def view(folder: Path, port: int, opening: bool) -> None:
    """Look at recorded runs in a browser: episodes, conversations, rewards. Compare two runs.

    FOLDER is a run, or holds runs in any depth. This command serves a page on this machine that reads the
    folder and writes nothing. The page works only at the printed address, which contains a token. Runs that
    are still being recorded are updated live.
    """
    serve_page(InspectorProxy(str(folder.resolve()), RunsApi(folder)), str(folder), port, opening)
