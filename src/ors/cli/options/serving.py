"""Options of `ors serve`: workers, limits, what a child inherits, and which options exclude each other."""

import dataclasses
import os
import re
import socket
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import click

from ors import Limits
from ors.cli.errors import WrongUsage
from ors.cli.options.listening import Access
from ors.cli.options.ray import OnRay
from ors.cli.options.shared import Grouped, flag, flags_of, gathered, given, typed
from ors.cli.settings import erase_secrets
from ors.cli.targets.process import LISTENER
from ors.cluster.local.messages import VARIABLE, WorkerConfig
from ors.server.process.system import LIFELINE, Lifeline
from ors.server.sessions.shared import MAX_SLOT

if TYPE_CHECKING:
    from ors.cluster.local.supervisor import Policy


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


class Bytes(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
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

    workers: int = flag(
        "Worker processes on this port. Each has its own sessions and limits. A supervisor restarts workers "
        "that crash and replaces them on SIGHUP.  [default: 1, without supervisor]",
        type=_Count(),
        default=1,
        show_default=False,
    )
    max_worker_memory: int | None = flag(
        "Replace a worker that uses more memory than this; kill it at twice that.", type=Bytes()
    )
    drain_seconds: float = flag(
        "How long a replaced worker (SIGHUP) may keep its sessions.", type=click.FloatRange(0), default=3600.0
    )
    slot: int = flag(
        "Number of this server behind a router; session ids contain it.",
        type=click.IntRange(0, MAX_SLOT),
        default=0,
    )

    @property
    def supervised(self) -> str:
        """First flag that needs a supervisor, even for one worker; empty if none does."""
        asked = {
            "--workers": given("workers"),
            "--max-worker-memory": self.max_worker_memory is not None,
            "--drain-seconds": given("drain_seconds"),
        }
        return next((flag for flag, so in asked.items() if so), "")

    def policy(self, limits: Limits) -> "Policy":
        from ors.cluster.local.supervisor import Policy

        return Policy(
            drain_seconds=self.drain_seconds,
            retire_seconds=limits.retire_seconds,
            grace_seconds=limits.grace_seconds,
            max_memory=self.max_worker_memory,
        )


def count() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


class _Number(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """A number of 0 or more, or "none" if the limit can be switched off."""

    def __init__(self, hint: Any) -> None:
        self._optional = isinstance(hint, types.UnionType)
        self._number: type[int] | type[float] = get_args(hint)[0] if self._optional else hint
        self.name = "integer" if self._number is int else "number"
        if self._optional:
            self.name += "|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | None:
        if self._optional and value == "none":
            return None
        try:
            number = self._number(value)
        except (TypeError, ValueError):
            number = -1
        if not number >= 0:
            self.fail(f"{value!r} is not a {self.name} of 0 or more", param, ctx)
        return number


def limit_flags(command: Callable[..., None]) -> Callable[..., None]:
    command = gathered("limits", Limits)(command)
    hints = get_type_hints(Limits)
    for limit in reversed(dataclasses.fields(Limits)):
        if limit.metadata["is_option"]:
            command = click.option(
                f"--{limit.name.replace('_', '-')}",
                cls=Grouped,
                group="Limits",
                type=_Number(hints[limit.name]),
                default="none" if limit.default is None else limit.default,
                show_default=True,
                help=limit.metadata["help"],
            )(command)
    return command


def check_together(on_ray: OnRay, workers: Workers, access: Access, reloading: bool) -> None:
    """Checks that every flag on the command line has an effect.

    Variables and files may set flags that have no effect here, except a slot and a certificate: otherwise
    session ids would not match the router, or traffic would be unencrypted.
    """
    if on_ray.ray is None:
        _refuse([name for name, _ in flags_of(OnRay) if name != "--ray"], "works only with --ray")
    else:
        _check_ray(access)
    check_processes(workers, reloading, on_ray=on_ray.ray is not None)


def check_processes(workers: Workers, reloading: bool, *, on_ray: bool = False) -> None:
    """Checks the flags that say how many processes serve, and when they are replaced."""
    if reloading:
        _refuse(
            ["--max-worker-memory", "--drain-seconds"],
            "cannot be combined with --reload, which runs one process",
        )
        _refuse(["--retire-seconds"], "cannot be combined with --reload, which does not wait for sessions")
        if workers.workers > 1:
            raise WrongUsage("--workers cannot be combined with --reload, which runs one process")
    elif workers.supervised and given("slot") and not on_ray:
        raise WrongUsage(
            f"--slot cannot be combined with {workers.supervised}: each worker gets its own slot"
        )


def _check_ray(access: Access) -> None:
    _refuse(["--reload"], "cannot be combined with --ray")
    if given("record"):
        raise WrongUsage("--record cannot be combined with --ray: each node has its own files")
    _refuse(
        ["--workers", "--max-worker-memory"],
        "cannot be combined with --ray: use --hosts for the number of servers",
    )
    _refuse(["--slot"], "cannot be combined with --ray: each host gets its own slot")
    _refuse(["--retire-seconds"], "cannot be combined with --ray: use --drain-seconds")
    if access.ssl_certfile is not None:
        raise WrongUsage("--ssl-certfile cannot be combined with --ray: use a proxy for https")


def _refuse(flags: Iterable[str], why: str) -> None:
    for name in flags:
        if typed("reloading" if name == "--reload" else name.removeprefix("--").replace("-", "_")):
            raise WrongUsage(f"{name} {why}")


@dataclass
class Inherited:
    fd: int | None = flag("Serve on this inherited socket.", type=int, hidden=True, envvar=LISTENER)
    lifeline: int | None = flag(
        "End when the other end of this pipe closes.", type=int, hidden=True, envvar=LIFELINE
    )
    worker_config: WorkerConfig | None = flag(
        "Serve as one of several workers.", type=WorkerConfig.read, hidden=True, envvar=VARIABLE
    )
    listener: socket.socket | None = field(default=None, init=False)
    line: Lifeline | None = field(default=None, init=False)
    keys: list[str] = field(default_factory=list, init=False)
    """The API keys of the parent's command line or environment."""

    @property
    def is_child(self) -> bool:
        """Whether a supervisor has started this process: that of workers, or that of `--reload`."""
        return self.fd is not None or self.worker_config is not None

    def take(self) -> None:
        """Takes over what was inherited, before environment code can pass it to its own children."""
        erase_secrets()
        for name in (LISTENER, LIFELINE):
            os.environ.pop(name, None)
        if self.is_child or self.lifeline is not None:
            self.keys = _read_keys()
        if self.worker_config is not None:
            self.line = self.worker_config.take()
            return
        if self.lifeline is not None:
            self.line = Lifeline(self.lifeline)
        if self.fd is not None:
            os.set_inheritable(self.fd, False)
            self.listener = socket.socket(fileno=self.fd)


def _read_keys() -> list[str]:
    with open(0, encoding="utf-8", closefd=False) as pipe:
        keys = pipe.read().split("\n")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return [key for key in keys if key]
