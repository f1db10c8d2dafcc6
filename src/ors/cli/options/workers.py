"""The flags of `ors serve --workers`."""

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
    """A number of processes, or `auto` for one per core."""

    name = "N|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the number."""
        if value == "auto":
            return count()
        if not (str(value).isdigit() and 1 <= int(value) <= 1024):
            self.fail(f"{value!r} is neither a number from 1 to 1024 nor auto", param, ctx)
        return int(value)


class _Bytes(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """An amount of memory: 500M, 2G, 2GiB, or a number of bytes."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the number of bytes."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", str(value).lower())
        if found is None:
            self.fail(f"{value!r} is no size, such as 500M or 2G", param, ctx)
        return int(float(found[1]) * UNITS[found[2]])


@dataclass(frozen=True)
class Workers:
    """The values of the worker flags."""

    workers: int
    preload: bool
    max_worker_memory: int | None
    max_worker_sessions: int | None
    drain_seconds: float

    @property
    def supervised(self) -> str:
        """The first flag that needs a supervisor; empty if none does."""
        asked = {
            "--workers": given("workers"),
            "--preload": self.preload,
            "--max-worker-memory": self.max_worker_memory is not None,
            "--max-worker-sessions": self.max_worker_sessions is not None,
            "--drain-seconds": given("drain_seconds"),
        }
        return next((flag for flag, so in asked.items() if so), "")

    def policy(self, limits: Limits) -> "Policy":
        """Returns the policy for the supervisor."""
        from ors.cluster.local import Policy

        return Policy(
            drain_seconds=self.drain_seconds,
            retire_seconds=limits.retire_seconds,
            grace_seconds=limits.grace_seconds,
            max_memory=self.max_worker_memory,
            max_sessions=self.max_worker_sessions,
        )


def count() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


FLAGS: list[tuple[str, dict[str, Any]]] = [
    (
        "--workers",
        {
            "type": _Count(),
            "default": 1,
            "help": "Processes on this port, each with its own sessions and limits. A supervisor restarts "
            "those that die, and replaces all on SIGHUP.  [default: 1, without a supervisor]",
        },
    ),
    (
        "--preload",
        {"is_flag": True, "help": "Import environments once, then fork the workers: they share the memory."},
    ),
    (
        "--max-worker-memory",
        {"type": _Bytes(), "help": "Replace a worker that uses more; kill one that uses twice as much."},
    ),
    (
        "--max-worker-sessions",
        {"type": click.IntRange(1), "help": "Replace a worker after this many sessions."},
    ),
    (
        "--drain-seconds",
        {
            "type": click.FloatRange(0),
            "default": 3600.0,
            "show_default": True,
            "help": "Longest time that a replaced worker keeps its sessions.",
        },
    ),
    (
        "--slot",
        {
            "type": click.IntRange(0, LAST_SLOT),
            "default": 0,
            "show_default": True,
            "help": "Number of this server among those behind one router; session ids contain it.",
        },
    ),
]


def worker_flags(command: F) -> F:
    """Adds the flags of workers."""
    for name, options in reversed(FLAGS):
        command = click.option(name, cls=Grouped, group="Workers", **options)(command)
    return command
