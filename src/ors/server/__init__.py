"""The server: checks environments, wires the parts, runs them."""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING

from ors._protocol import Limits
from ors.environment import Environment
from ors.server.access import ApiKey, Keys
from ors.server.app import App
from ors.server.asgi import ASGI
from ors.server.house import House
from ors.server.identity import Identity
from ors.server.observers import Observer, Observers
from ors.server.offers import offers
from ors.server.wording import ReturnErrors, Wording

if TYPE_CHECKING:
    from ors.server._uvicorn import Runner

__all__ = ["ApiKey", "Limits", "Observer", "Server"]

log = logging.getLogger("ors.server")

TRACES_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
"""OpenTelemetry's own: with it set and the extra installed, sessions and calls are traced."""


class Server:
    """Serves environments over HTTP. The first one is the default.

    `return_errors` says what clients see of an exception: "none", its message ("exception"), or the
    whole traceback ("stacktrace"). `api_keys` are what clients must send one of: "SECRET", "NAME=SECRET", or
    ApiKey. `cors_origins` are the web pages that may call the server from a browser. `observers` are told
    what happens. `inspector` says whether a page to look at the server from a browser is offered at `/-/`; by
    default it is when `run` listens where only this machine can reach it. `slot` (0 to 65535) tells this
    server from others behind one address: the ids that it gives to sessions carry it.

    Raises:
        InvalidEnvironment: an environment is written wrongly; the text says where.
    """

    def __init__(
        self,
        environments: Sequence[type[Environment]],
        return_errors: ReturnErrors = "exception",
        *,
        limits: Limits | None = None,
        api_keys: Sequence[ApiKey | str] = (),
        cors_origins: Sequence[str] = (),
        observers: Sequence[Observer] = (),
        inspector: bool | None = None,
        slot: int = 0,
    ) -> None:
        self.limits = limits or Limits()
        watching = [*observers, *_tracing()]
        house = House(self.limits, Wording(return_errors), Observers(watching), Identity(slot))
        self._app = App(offers(environments, house), house, Keys(api_keys), cors_origins)
        self._inspector = inspector
        self._app.pages.inspecting = bool(inspector)
        self.app = ASGI(self._app)
        """The ASGI application, for any ASGI server."""

    def run(
        self,
        host: str = "127.0.0.1",
        port: int = 8080,
        *,
        insecure: bool = False,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
    ) -> None:
        """Serves until it is told to stop (Ctrl-C, SIGTERM), then ends every session.

        Raises:
            ValueError: the host is open to the network, without API keys, and `insecure` does not say that
                this is meant.
        """
        names = ", ".join(self._app.environments)
        self.runner(
            host,
            port,
            insecure=insecure,
            ssl_certfile=ssl_certfile,
            ssl_keyfile=ssl_keyfile,
            on_start=lambda url: _say(f"Serving {names} on {url} (Ctrl-C ends it)"),
        ).run()

    def runner(
        self,
        host: str = "127.0.0.1",
        port: int = 8080,
        *,
        insecure: bool = False,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
        on_start: Callable[[str], None] | None = None,
    ) -> "Runner":
        """The server on a port, not yet started; `on_start` is told its URL when it listens.

        Raises:
            ValueError: as `run` does.
        """
        from ors.server._uvicorn import Runner

        self._guard(host, insecure)
        return Runner(self._app, host, port, on_start, ssl_certfile, ssl_keyfile)

    def _guard(self, host: str, insecure: bool) -> None:
        loopback = is_loopback(host)
        if not loopback and not self._app.keys and not insecure:
            raise ValueError(
                f"on {host}, anyone who can reach this machine could list all tasks and call all tools: "
                "pass api_keys, or insecure=True if that is meant"
            )
        self._app.guard(host, loopback=loopback and not insecure)
        if self._inspector is None:
            self._app.pages.inspecting = loopback and not insecure


def _tracing() -> Sequence[Observer]:
    # OpenTelemetry is an extra, and is not loaded unless it is wanted.
    if not os.environ.get(TRACES_VARIABLE):
        return ()
    try:
        from ors.server.tracing import exported

        return exported()
    except ImportError:
        log.warning("%s is set, but traces are an extra: pip install 'ors-kit[otel]'", TRACES_VARIABLE)
        return ()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
