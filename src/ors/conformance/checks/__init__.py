"""Checks, one per requirement."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType

from ors.conformance.subject import ServerUnderTest

Run = Callable[[ServerUnderTest], Awaitable[None]]

MODULES = (
    "messages",
    "header",
    "discovery",
    "tasks",
    "opening",
    "ending",
    "expiry",
    "episodes",
    "calls",
    "running",
    "streams",
    "rejoining",
)


@dataclass(frozen=True)
class Check:
    """One check. `run` raises Violation if it fails, and NotTried if it is not possible."""

    id: str
    run: Run
    probe: bool = False
    """Needs the probe environment."""
    indexed: bool = False
    """Needs the probe environment without task lists."""
    several: bool = False
    """Needs a server with several environments."""
    single: bool = False
    """Needs a server with one environment."""
    slow: bool = False
    """Waits for the times of the specification."""

    def obstacle(self, server: ServerUnderTest, slow: bool) -> str | None:
        """Reason why the check is not possible on this server, or None."""
        if self.slow and not slow:
            return "slow"
        if self.probe and not server.has_probe:
            return "needs the probe environment"
        if self.indexed and not server.has_indexed:
            return "needs the environment probe_indexed"
        if self.several and len(server.environments) < 2:
            return "needs a server with several environments"
        if self.single and len(server.environments) != 1:
            return "needs a server with one environment"
        return None


def check(
    id: str,
    *,
    probe: bool = False,
    indexed: bool = False,
    several: bool = False,
    single: bool = False,
    slow: bool = False,
) -> Callable[[Run], Check]:
    """Decorator that makes a function the check of a requirement."""
    return lambda run: Check(id, run, probe, indexed, several, single, slow)


@cache
def all_checks() -> tuple[Check, ...]:
    """All checks, in the order of the modules."""
    modules = (import_module(f"ors.conformance.checks.{name}") for name in MODULES)
    return tuple(found for module in modules for found in _in(module))


def _in(module: ModuleType) -> Iterable[Check]:
    for value in vars(module).values():
        if isinstance(value, Check):
            yield value
        elif isinstance(value, tuple):
            yield from (entry for entry in value if isinstance(entry, Check))
