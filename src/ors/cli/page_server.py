"""The local server of the inspector page, for commands that show something in a browser."""

import socket
import webbrowser
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

import click
import uvicorn

from ors.cli.sockets import listener
from ors.inspector import StandIn

F = TypeVar("F", bound=Callable[..., Any])

HOST = "127.0.0.1"
STOP_SECONDS = 1


def page_flags(command: F) -> F:
    """`--port` and `--open`."""
    command = click.option("--open", "opening", is_flag=True, help="Open the page in a browser.")(command)
    return click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=0,
        help="Local port of the page; 0 takes any free port.",
        show_default=True,
    )(command)


def serve_page(app: StandIn, what: str, port: int, opening: bool) -> None:
    """Serves the page until a signal; prints its address, and opens it in a browser if asked to."""
    _PageServer(app, what, opening).run(sockets=[listener(HOST, port)])


class _PageServer(uvicorn.Server):
    """uvicorn that prints the address of the page and does not wait for streams when it stops."""

    def __init__(self, app: StandIn, what: str, opening: bool) -> None:
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
        click.echo(f"Look at {self._what} on {url} (stop with Ctrl-C)")
        if self._opening:
            webbrowser.open(url)
