"""`ors inspect` and `ors view`: a server, or recorded runs, in a browser."""

import os
import socket
import webbrowser
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, TypeVar

import click
import uvicorn

from ors.cli.errors import wrong_usage
from ors.cli.options.listening import listener
from ors.cli.options.shared import PORT, WHERE, Command, api_key
from ors.cli.targets.resolve import as_url, built, environments
from ors.client import ASGITransport, Transport, http_transport
from ors.inspector import InspectorProxy, RunFolder

F = TypeVar("F", bound=Callable[..., Any])

HOST = "127.0.0.1"
STOP_SECONDS = 1
REDIRECT = (
    '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
    '<meta http-equiv="refresh" content="0;url={url}"><title>ors</title><a href="{url}">Open the page</a>\n'
)


def page_flags(command: F) -> F:
    command = click.option("--open", "opening", is_flag=True, help="Open the page in a browser.")(command)
    return click.option(
        "--port",
        type=PORT,
        default=0,
        help="Local port of the page; 0 picks a free one.",
    )(command)


def serve_page(app: InspectorProxy, what: str, port: int, opening: bool) -> None:
    """Serves the page until a signal; prints its address, and opens it in a browser if asked to."""
    with TemporaryDirectory(prefix="ors-") if opening else nullcontext() as folder:
        _PageServer(app, what, folder).run(sockets=[listener(HOST, port)])


class _PageServer(uvicorn.Server):
    """uvicorn that prints the address of the page and does not wait for streams when it stops."""

    def __init__(self, app: InspectorProxy, what: str, folder: str | None) -> None:
        """`folder` is for the file that opens the page in a browser; without it, none is opened."""
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
        self._what = what
        self._folder = folder

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.started or not sockets:
            return
        url = f"http://{HOST}:{sockets[0].getsockname()[1]}/-/?token={self._token}"
        click.echo(f"Look at {self._what} on {url} (stop with Ctrl-C)")
        if self._folder is not None:
            _open(url, Path(self._folder, "open.html"))


def _open(url: str, page: Path) -> None:
    """Opens an address in a browser by a file: all users see the browser's command line, but not the file."""
    page.touch(0o600)
    page.write_text(REDIRECT.format(url=url))
    webbrowser.open(page.as_uri())


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
    serve_page(InspectorProxy(url, transport, key), where, port, opening)


def _reached(where: str) -> tuple[str, Transport]:
    url = as_url(where)
    if url is None:
        return "", ASGITransport(built(environments([where]), inspector=True, return_errors="line").app)
    with wrong_usage(ValueError):
        return url, http_transport(url)


@click.command("view", cls=Command, examples=["ors view runs", "ors view runs/first --port 8090"])
@click.argument(
    "folder", metavar="FOLDER", type=click.Path(exists=True, file_okay=False, readable=True, path_type=Path)
)
@page_flags
def view(folder: Path, port: int, opening: bool) -> None:
    """Look at recorded runs in a browser: episodes, conversations, rewards. Compare two runs.

    FOLDER is a run, or holds runs in any depth. This command serves a page on this machine that reads the
    folder and writes nothing. The page works only at the printed address, which contains a token. Runs that
    are still being recorded are updated live.
    """
    app = InspectorProxy(str(folder.resolve()), ASGITransport(RunFolder(folder)), command="ors view")
    serve_page(app, str(folder), port, opening)
