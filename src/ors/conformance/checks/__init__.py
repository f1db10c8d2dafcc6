"""Checks, one per requirement."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Literal

from ors.conformance import expect
from ors.conformance.subject import CheckedSession, ServerUnderTest

Run = Callable[[ServerUnderTest], Awaitable[None]]
RunInSession = Callable[[CheckedSession], Awaitable[None]]

Need = Literal["probe", "probe_indexed", "several", "single", "slow"]

UNKNOWN = "no-such-session"
MODULES = ("messages", "discovery", "opening", "ending", "calls", "running", "streams")
OBSTACLES: dict[Need, str] = {
    "slow": "slow",
    "probe": "needs the probe environment",
    "probe_indexed": "needs the environment probe_indexed",
    "several": "needs a server with several environments",
    "single": "needs a server with one environment",
}


@dataclass(frozen=True)
class Check:
    """One check. `run` raises Violation if it fails, and NotTried if it is not possible."""

    id: str
    run: Run
    needs: tuple[Need, ...]
    """A slow check waits for the times of the specification."""

    def obstacle(self, server: ServerUnderTest, slow: bool) -> str | None:
        """Reason why the check is not possible on this server, or None."""
        met: dict[Need, bool] = {
            "slow": slow,
            "probe": "probe" in server.probes,
            "probe_indexed": "probe_indexed" in server.probes,
            "several": len(server.environments) > 1,
            "single": len(server.environments) == 1,
        }
        return next((why for need, why in OBSTACLES.items() if need in self.needs and not met[need]), None)


def check(id: str, *needs: Need) -> Callable[[Run], Check]:
    """Decorator that makes a function the check of a requirement."""
    return lambda run: Check(id, run, needs)


def in_session(id: str, *needs: Need, **task: Any) -> Callable[[RunInSession], Check]:
    """The same for a function that gets an open session; `task` is added to the task of the probe."""

    def checked(run: RunInSession) -> Check:
        async def opened(server: ServerUnderTest) -> None:
            async with server.session(**task) as episode:
                await run(episode)

        return Check(id, opened, needs)

    return checked


def answers(
    id: str,
    status: int,
    method: str,
    path: str,
    *bodies: Any,
    session: Literal["unknown", "deleted"] | None = None,
) -> Check:
    """The check that a request gets this status, with each of the bodies.

    `path` is formatted with the server: "/{0.environment}/prompt".
    """

    async def run(server: ServerUnderTest) -> None:
        sid = (await server.deleted()).sid if session == "deleted" else session and UNKNOWN
        for body in bodies or (None,):
            expect.status(await server.ask(method, path.format(server), body, sid=sid), status)

    return check(id)(run)


@cache
def all_checks() -> tuple[Check, ...]:
    modules = (import_module(f"ors.conformance.checks.{name}") for name in MODULES)
    return tuple(found for module in modules for found in _in(module))


def _in(module: ModuleType) -> Iterable[Check]:
    for value in vars(module).values():
        if isinstance(value, Check):
            yield value
        elif isinstance(value, tuple):
            yield from (entry for entry in value if isinstance(entry, Check))
