"""The public server: checks environments, builds the application, runs it."""

import errno
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ors.environment import Environment
from ors.limits import Limits
from ors.server.app import App
from ors.server.connections.asgi import ASGI
from ors.server.episodes.author_code import AuthorCode
from ors.server.episodes.environments import ServedEnvironment, served_environments
from ors.server.episodes.error_text import ErrorText, ReturnErrors
from ors.server.episodes.threads import Threads
from ors.server.http.origin_check import is_loopback as is_loopback
from ors.server.http.routing import Owner, Route
from ors.server.observe.counters import SandboxCounts
from ors.server.observe.events import Observer, Observers, Recorder
from ors.server.process.runner import Runner, bound
from ors.server.sessions.admission import ApiKey, Keys
from ors.server.sessions.shared import Identity, Shared

if TYPE_CHECKING:
    from ors.server.admin.pages import RecordedRuns

__all__ = ["ApiKey", "Limits", "Observer", "Server"]

log = logging.getLogger("ors.server")

STARTUP_FAILURE = 3
TRACES_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""OpenTelemetry's own: with one of them set and the extra installed, spans are sent there."""
BANNER = "ors.cli.output.banner:Banner"
"""What `run` prints when it has started. By name, since the command line imports the server."""
LINK = "ors.cluster.link:upgrade"
"""Makes links to a server possible. By name, since the cluster imports the server."""
Launch = Callable[[Sequence[type[Environment]], dict[str, Any], dict[str, Any]], None]
LAUNCH: ContextVar[Launch | None] = ContextVar("ors_launch", default=None)
"""What `Server.run` does in this context instead: `ors run` sets it, so that its options win. It gets the
environments, and the arguments of the constructor and of `run`."""


class Server:
    """Serves environments over HTTP. The first one is the default.

    `return_errors` says what clients see of an exception: nothing ("none"), its message ("exception"), the
    author's last line too ("line", only for programs on this machine), or the whole traceback ("stacktrace").
    `api_keys`: clients must send one of them; each is "SECRET", "NAME=SECRET" or an ApiKey. `cors_origins`
    are web pages that may call the server from a browser. `observers` are notified of what happens.
    `inspector` says whether to serve the inspector at `/-/`; by default, `run` does if only this machine can
    reach the server. `slot` (0 to 65535) distinguishes this server from others behind one address: it is part
    of the ids of its sessions.

    Raises:
        InvalidEnvironment: an environment is invalid; the message says where.
    """

    def __init__(
        self,
        environments: Sequence[type[Environment]],
        return_errors: ReturnErrors = "exception",
        *,
        limits: Limits | None = None,
        api_keys: Sequence[ApiKey | str] = (),
        cors_origins: Sequence[str] = (),
        observers: Sequence[Observer | Recorder] = (),
        inspector: bool | None = None,
        slot: int = 0,
    ) -> None:
        self.limits = limits or Limits()
        self._classes = environments
        self._options = {
            "return_errors": return_errors,
            "limits": self.limits,
            "api_keys": api_keys,
            "cors_origins": cors_origins,
            "observers": observers,
            "inspector": inspector,
            "slot": slot,
        }
        watching = Observers([*observers, *_telemetry()])
        code = AuthorCode(Threads(), ErrorText(return_errors), SandboxCounts(watching))
        self._app = App(
            served_environments(environments, code, self.limits),
            code,
            Shared(self.limits, watching),
            Keys(api_keys),
            cors_origins,
            Identity(slot),
        )
        if not api_keys:
            _warn_of_open_sandboxes(environments)
        self._inspector = inspector
        self._app.inspect(bool(inspector))
        self.app = ASGI(self._app)
        """The ASGI application, for any ASGI server."""

    def extend(
        self, make: Callable[[App, dict[str, ServedEnvironment]], Owner], rows: Sequence[Route[Owner]]
    ) -> None:
        """Answers further paths: `make` returns the owner of the handlers in `rows`."""
        self._app.extend(make, rows)

    def show_runs(self, runs: "RecordedRuns") -> None:
        """Shows recorded runs in the inspector; `ors.inspector.RunsApi` reads them from a folder."""
        self._app.show_runs(runs)

    def run(
        self,
        host: str = "127.0.0.1",
        port: int = 8080,
        *,
        insecure: bool = False,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
    ) -> None:
        """Serves until Ctrl-C or SIGTERM, then ends every session.

        Raises:
            ValueError: the host is open to the network, without API keys, and `insecure` does not say that
                this is meant.
        """
        how: dict[str, Any] = {"host": host, "port": port, "insecure": insecure}
        how |= {"ssl_certfile": ssl_certfile, "ssl_keyfile": ssl_keyfile}
        if (launch := LAUNCH.get()) is not None:
            launch(self._classes, self._options, how)
            return
        banner = resolve_name(BANNER)
        key = next((key.secret for key in self._app.keys.by_name.values()), None)

        def show(url: str) -> None:
            banner(self._app.inspecting, is_loopback(host), key).show([url], self._app.environments)

        self.runner(**how, on_start=show).run(sockets=[_listener(host, port)])

    def runner(
        self,
        host: str = "127.0.0.1",
        port: int = 8080,
        *,
        insecure: bool = False,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
        on_start: Callable[[str], None] | None = None,
    ) -> Runner:
        """The server on a port, not yet started; `on_start` is told its URL when it listens.

        Raises:
            ValueError: as `run` does.
        """
        self._guard(host, insecure)
        app = self._app
        runner = Runner(app, host, port, on_start, ssl_certfile, ssl_keyfile, parts=[app])
        if not app.is_local:  # a router is a proxy
            runner.clients.context.upgrades.update([resolve_name(LINK)(app)])
        return runner

    def _guard(self, host: str, insecure: bool) -> None:
        loopback = is_loopback(host)
        if self._app.is_local and (not loopback or insecure):
            raise ValueError('return_errors="line" exposes source code, so it needs a loopback host')
        if not loopback and not self._app.keys and not insecure:
            raise ValueError(
                f"on {host}, anyone who can reach this machine could list all tasks and call all tools: "
                "pass api_keys, or insecure=True to allow this"
            )
        self._app.guard(host, loopback=loopback and not insecure)
        if self._inspector is None:
            self._app.inspect(loopback and not insecure)


def _warn_of_open_sandboxes(environments: Sequence[type[Environment]]) -> None:
    for cls in environments:
        kind = getattr(cls, "sandbox", None)  # a SandboxSpec, or a Pool of them
        if getattr(getattr(kind, "spec", kind), "network", None) == "host":
            risk = "without api_keys, agents can read the answers of tasks and end other sessions"
            log.warning("%s: its sandboxes reach this server over the host's network; %s", cls.__name__, risk)


def _telemetry() -> Sequence[Observer]:
    # OpenTelemetry is optional, and loaded only if configured.
    variable = next((name for name in TRACES_VARIABLES if os.environ.get(name)), None)
    if variable is None or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return ()
    try:
        from ors.server.observe.otel_traces import exported

        return exported()
    except ImportError:
        log.warning("%s is set, but telemetry is an extra: pip install 'ors-kit[otel]'", variable)
        return ()


def _listener(host: str, port: int) -> socket.socket:
    """Opens the socket to serve on, or ends the program with a line that says what to do."""
    try:
        return bound(host, port)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = f"the port is in use; pass another, such as run(port={port + 1})" if taken else error.strerror
        _print(f"Cannot listen on {host}:{port}: {why}")
        sys.exit(STARTUP_FAILURE)


def _print(line: str) -> None:
    if sys.stderr is not None:  # may be closed by the parent process
        sys.stderr.write(f"{line}\n")
