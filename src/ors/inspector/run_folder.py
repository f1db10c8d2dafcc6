"""A folder of runs in the place of a server: answers what the inspector page asks about them."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from urllib.parse import unquote

from ors import __version__
from ors.client import Response
from ors.errors import MethodNotAllowed, NotFound, ORSError
from ors.inspector.runs_api import RunsApi
from ors.server.admin.inspector_api import ABOUT, RUNS
from ors.server.http.answers import Answer, answer, refusal
from ors.server.http.requests import Request

HEALTH = "/health"


class RunFolder:
    """Transport that reads the runs below a folder. No server is behind it, and nothing is written."""

    def __init__(self, folder: Path) -> None:
        self._runs = RunsApi(folder)

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Answers a request of the page."""
        try:
            return _Whole(await self._answer(method, path))
        except ORSError as error:
            return _Whole(refusal(error))

    async def _answer(self, method: str, target: str) -> Answer:
        path, _, query = target.partition("?")
        if method not in ("GET", "HEAD"):
            raise MethodNotAllowed("Runs are only shown here; use GET", allow="GET")
        if path == HEALTH:
            return answer({"status": "ok"})
        if path == ABOUT:
            return answer(
                {"version": __version__, "server": None, "live": False, "runs": True, "serves": False}
            )
        if f"{path}/".startswith(f"{RUNS}/"):
            return await self._runs.get(Request("GET", unquote(path), query.encode(), {}, b""))
        raise NotFound("There is no server here, only recorded runs")

    async def close(self) -> None:
        """Has nothing to close."""


class _Whole:
    """Response with a complete body."""

    ended = True

    def __init__(self, answered: Answer) -> None:
        self.status = answered.status
        self.headers = {name.decode(): value.decode("latin-1") for name, value in answered.headers.pairs}
        self._body = answered.body

    @property
    def body(self) -> AsyncIterator[bytes]:
        return self._parts()

    async def _parts(self) -> AsyncIterator[bytes]:
        yield self._body

    def close(self) -> None:
        """Has nothing to close."""
