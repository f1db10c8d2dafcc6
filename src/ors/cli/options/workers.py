"""`ors serve --workers`: the flags of workers, and how the command starts them."""

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ors import Limits
from ors.cli.options.shared import Grouped, given

if TYPE_CHECKING:
    from ors.cluster.local import Policy

__all__ = ["LAST_SLOT", "Workers", "worker_flags"]

F = TypeVar("F", bound=Callable[..., Any])
LAST_SLOT = 65535  # 16 bits of a session id
UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class _Count(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """A number of processes, or `auto` for one a core."""

    name = "N|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        if value == "auto":
            return count()
        if not (str(value).isdigit() and 1 <= int(value) <= 1024):
            self.fail(f"{value!r} is neither a number from 1 to 1024 nor auto", param, ctx)
        return int(value)


class _Bytes(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """An amount of memory: 500M, 2G, 2GiB, or a number of bytes."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The bytes."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", str(value).lower())
        if found is None:
            self.fail(f"{value!r} is no size, such as 500M or 2G", param, ctx)
        return int(float(found[1]) * UNITS[found[2]])


@dataclass(frozen=True)
class Workers:
    """How many workers, and when they are replaced."""

    workers: int
    preload: bool
    max_worker_memory: int | None
    max_worker_sessions: int | None
    drain_seconds: float

    @property
    def supervised(self) -> str:
        """The flag that asks for a supervisor, be it of one worker; empty if none does."""
        asked = {
            "--workers": given("workers"),
            "--preload": self.preload,
            "--max-worker-memory": self.max_worker_memory is not None,
            "--max-worker-sessions": self.max_worker_sessions is not None,
            "--drain-seconds": given("drain_seconds"),
        }
        return next((flag for flag, so in asked.items() if so), "")

    def policy(self, limits: Limits) -> "Policy":
        """As their supervisor needs it."""
        from ors.cluster.local import Policy

        return Policy(
            drain_seconds=self.drain_seconds,
            retire_seconds=limits.retire_seconds,
            grace_seconds=limits.grace_seconds,
            max_memory=self.max_worker_memory,
            max_sessions=self.max_worker_sessions,
        )


def count() -> int:
    """One worker for each core that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


FLAGS: list[tuple[str, dict[str, Any]]] = [
    (
        "--workers",
        {
            "type": _Count(),
            "default": 1,
            "help": "Processes on this port; each has its own sessions and limits. They are supervised, one "
            "too: started again when they die, replaced on SIGHUP.  [default: 1, not supervised]",
        },
    ),
    (
        "--preload",
        {"is_flag": True, "help": "Import once, then copy the process: workers share what was loaded."},
    ),
    (
        "--max-worker-memory",
        {"type": _Bytes(), "help": "Replace a worker that has more; kill one that has twice as much."},
    ),
    (
        "--max-worker-sessions",
        {"type": click.IntRange(1), "help": "Replace a worker that has had so many sessions."},
    ),
    (
        "--drain-seconds",
        {
            "type": click.FloatRange(0),
            "default": 3600.0,
            "show_default": True,
            "help": "A worker that is replaced (SIGHUP) keeps its sessions for so long.",
        },
    ),
    (
        "--slot",
        {
            "type": click.IntRange(0, LAST_SLOT),
            "default": 0,
            "show_default": True,
            "help": "Number of this server among several behind one router; session ids carry it.",
        },
    ),
]


def worker_flags(command: F) -> F:
    """Adds the flags of workers."""
    for name, options in reversed(FLAGS):
        command = click.option(name, cls=Grouped, group="Workers", **options)(command)
    return command
