"""The inspector: the files of its page, and its interface below `/-/api/`."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Protocol

from ors._version import __version__
from ors.errors import Forbidden, Gone, NotFound, SandboxDead, SandboxLimit
from ors.server.admin.live_sessions import LiveSessions, View
from ors.server.admin.task_search import TaskSearch
from ors.server.episodes.environments import ServedEnvironment
from ors.server.http.answers import Answer, Headers, Redirect, answer
from ors.server.http.requests import Request
from ors.server.http.routes import Coming
from ors.server.http.streams import Feed
from ors.server.sessions.api_keys import Keys
from ors.server.sessions.registry import Sessions
from ors.server.sessions.session import ServerSession

HOME = "/-/"
FILES = "/-/page/"
ABOUT = "/-/api/about"
ENVIRONMENTS = "/-/api/environments"
TASKS = "/-/api/tasks"
LIVE = "/-/api/live"
CALLS = "/-/api/calls/"
SANDBOX = "/-/api/sandbox/"
RUNS = "/-/api/runs"
LOOK_SECONDS = 5.0
PAGE = 100
MAX_PAGE = 2000

TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}
# The output of environments is untrusted: only our own files may run or load, and no data may leave.
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@cache
def page_files() -> Mapping[str, Answer]:
    """The files of the page by path, read once."""
    folder = files("ors").joinpath("inspector", "page")
    found = {FILES + file.name: _file(file.name, file.read_bytes()) for file in folder.iterdir()}
    return {HOME: found[f"{FILES}index.html"], **found}


def _file(name: str, content: bytes) -> Answer:
    headers = Headers(
        (b"content-type", TYPES[PurePosixPath(name).suffix]),
        (b"content-security-policy", POLICY),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-cache"),
    )
    return Answer(200, content, headers)


class RecordedRuns(Protocol):
    """Recorded runs, as far as the page needs them."""

    def get(self, request: Request) -> Coming:
        """Answers a request below `/-/api/runs`."""


class Inspector:
    """The page and its interface, for GET requests."""

    def __init__(
        self,
        live: LiveSessions,
        sessions: Sessions,
        environments: Mapping[str, ServedEnvironment],
        keys: Keys,
    ) -> None:
        self._live = live
        self._sessions = sessions
        self._environments = environments
        self._keys = keys
        self.runs: RecordedRuns | None = None
        """The runs that the page shows, if the server keeps records."""

    def get(self, request: Request, now: float) -> Answer | Feed | Coming | None:
        """The answer to a request, or None if nothing has its path."""
        path = request.path if request.path == HOME else request.path.rstrip("/")
        if path in ("", HOME[:-1]):
            raise Redirect(HOME.encode(), for_good=bool(path))
        if path == ABOUT:
            runs = self.runs is not None and self._sees_runs(request.key)
            return answer(
                {"version": __version__, "server": None, "live": True, "runs": runs, "serves": True}
            )
        if path == ENVIRONMENTS:
            return answer([_described(environment) for environment in self._environments.values()])
        if path == TASKS:
            return self._found_tasks(request)
        if path == LIVE:
            return self._live.sessions(_view(request))
        if self.runs is not None and f"{path}/".startswith(f"{RUNS}/"):
            if not self._sees_runs(request.key):
                raise Forbidden(
                    "Records hold the sessions of all keys: only keys with `private` may see them"
                )
            return self.runs.get(request)
        if path.startswith(CALLS):
            return self._calls(path[len(CALLS) :], now, request.key)
        if path.startswith(SANDBOX):
            return _sandbox(self._sessions.peek(path[len(SANDBOX) :], now, request.key))
        return page_files().get(path)

    def _calls(self, sid: str, now: float, key: str) -> Answer | Feed:
        try:
            return self._live.calls(self._sessions.peek(sid, now, key))
        except (Gone, NotFound):
            ended = self._live.ended_calls(sid, key)
            if ended is None:
                raise
            return ended

    async def _found_tasks(self, request: Request) -> Answer:
        environment = self._environments.get(request.asked("environment"))
        if environment is None:
            raise NotFound("There is no such environment")
        private = self._keys.sees_private(request.key)
        search = TaskSearch(environment, request.asked("split"), request.asked("text"), private)
        return answer(await search.run(request.number("from", 0)))

    def _sees_runs(self, key: str) -> bool:
        return len(self._keys.by_name) < 2 or self._keys.sees_private(key)


async def _sandbox(session: ServerSession) -> Answer:
    """The contents of a session's sandbox; null if it has none, or if it does not answer."""
    # Imported here: most servers have no sandbox.
    from ors.sandbox import Sandbox

    box = session.episode.sandbox if session.episode is not None else None
    if not isinstance(box, Sandbox):
        return answer(None)
    try:
        # The sandbox would be killed if it were waited for much longer.
        async with asyncio.timeout(LOOK_SECONDS):
            return answer(asdict(await box.look()))
    except (SandboxDead, SandboxLimit, TimeoutError):
        return answer(None)


def _described(environment: ServedEnvironment) -> dict[str, object]:
    return {
        "name": environment.name,
        "description": environment.description,
        "splits": environment.splits,
        "tools": environment.tools.tools,
        "task_tools": environment.task_tools,
        "terminal_tool": environment.tools.terminal_tool,
        "required_secrets": environment.required_secrets,
    }


def _view(request: Request) -> View:
    start, count = request.number("offset", 0), min(request.number("limit", PAGE), MAX_PAGE)
    return View(request.key, request.asked("environment"), request.asked("state"), start, count)
