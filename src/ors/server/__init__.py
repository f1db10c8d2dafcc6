"""The server: checks environments, wires the parts, runs them."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ors._protocol import Limits
from ors.environment import Environment
from ors.server.app import App
from ors.server.asgi import ASGI
from ors.server.episode import House
from ors.server.offers import offers
from ors.server.wording import ReturnErrors, Wording

if TYPE_CHECKING:
    from ors.server._uvicorn import Runner

__all__ = ["Limits", "Server"]


class Server:
    """Serves environments over HTTP. The first one is the default.

    `return_errors` says what clients see of an exception: "none", its message ("exception"), or the
    whole traceback ("stacktrace").

    Raises:
        InvalidEnvironment: an environment is written wrongly; the text says where.
    """

    def __init__(
        self,
        environments: Sequence[type[Environment]],
        return_errors: ReturnErrors = "exception",
        *,
        limits: Limits | None = None,
    ) -> None:
        self.limits = limits or Limits()
        house = House(self.limits, Wording(return_errors))
        self._app = App(offers(environments, house), house)
        self.app = ASGI(self._app)
        """The ASGI application, for any ASGI server."""

    def run(self, host: str = "127.0.0.1", port: int = 8080) -> None:
        """Serves until it is told to stop (Ctrl-C, SIGTERM), then ends every session."""
        names = ", ".join(self._app.environments)
        self.runner(host, port, on_start=lambda url: _say(f"Serving {names} on {url} (Ctrl-C ends it)")).run()

    def runner(
        self, host: str = "127.0.0.1", port: int = 8080, *, on_start: Callable[[str], None] | None = None
    ) -> "Runner":
        """The server on a port, not yet started; `on_start` is told its URL when it listens."""
        from ors.server._uvicorn import Runner

        return Runner(self._app, host, port, on_start)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
