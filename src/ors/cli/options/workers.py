"""`ors serve --workers`: flags for worker processes."""

import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ors import Limits
from ors.cli.options.shared import Flags, add_flags, given
from ors.server.identity import MAX_SLOT

if TYPE_CHECKING:
    from ors.cluster.local import Policy

UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class _Count(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """A number of processes, or `auto` for one per core."""

    name = "N|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "auto":
            return count()
        if not (str(value).isdigit() and 1 <= int(value) <= 1024):
            self.fail(f"{value!r} is neither a number from 1 to 1024 nor auto", param, ctx)
        return int(value)


class _Bytes(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """An amount of memory: 500M, 2G, 2GiB, or a number of bytes."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", str(value).lower())
        if found is None:
            self.fail(f"{value!r} is not a size, such as 500M or 2G", param, ctx)
        return int(float(found[1]) * UNITS[found[2]])


@dataclass(frozen=True)
class Workers:
    """Number of workers, and when to replace them; the slot of a server without them."""

    workers: int
    max_worker_memory: int | None
    max_worker_sessions: int | None
    drain_seconds: float
    slot: int

    @property
    def supervised(self) -> str:
        """First flag that needs a supervisor, even for one worker; empty if none does."""
        asked = {
            "--workers": given("workers"),
            "--max-worker-memory": self.max_worker_memory is not None,
            "--max-worker-sessions": self.max_worker_sessions is not None,
            "--drain-seconds": given("drain_seconds"),
        }
        return next((flag for flag, so in asked.items() if so), "")

    def policy(self, limits: Limits) -> "Policy":
        from ors.cluster.local import Policy

        return Policy(
            drain_seconds=self.drain_seconds,
            retire_seconds=limits.retire_seconds,
            grace_seconds=limits.grace_seconds,
            max_memory=self.max_worker_memory,
            max_sessions=self.max_worker_sessions,
        )


def count() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


FLAGS: Flags = (
    (
        "--workers",
        {
            "type": _Count(),
            "default": 1,
            "help": "Worker processes on this port. Each has its own sessions and limits. A supervisor "
            "restarts workers that crash and replaces them on SIGHUP.  [default: 1, without supervisor]",
        },
    ),
    (
        "--max-worker-memory",
        {"type": _Bytes(), "help": "Replace a worker that uses more memory; kill it at twice as much."},
    ),
    (
        "--max-worker-sessions",
        {"type": click.IntRange(1), "help": "Replace a worker after this number of sessions."},
    ),
    (
        "--drain-seconds",
        {
            "type": click.FloatRange(0),
            "default": 3600.0,
            "show_default": True,
            "help": "Longest time that a replaced worker (SIGHUP) keeps its sessions.",
        },
    ),
    (
        "--slot",
        {
            "type": click.IntRange(0, MAX_SLOT),
            "default": 0,
            "show_default": True,
            "help": "Number of this server behind a router; session ids contain it.",
        },
    ),
)
worker_flags = add_flags("Workers", FLAGS)
